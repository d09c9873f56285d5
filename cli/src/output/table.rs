//! Tables in the form of `kubectl get`: columns separated by three spaces, and no lines.

use unicode_width::UnicodeWidthStr;

use super::{Paint, paint, wrapped};

const GAP: usize = 3;
/// The last column is not broken into lines shorter than this.
const NARROWEST: usize = 24;

/// A table. Its last column, which holds prose if any does, is broken into lines that fit the terminal.
pub struct Table {
    headers: Vec<&'static str>,
    rows: Vec<Vec<(String, Paint)>>,
}

impl Table {
    pub fn new(headers: &[&'static str]) -> Self {
        Self {
            headers: headers.to_vec(),
            rows: Vec::new(),
        }
    }

    /// Adds a row of plain cells.
    pub fn row<T: Into<String>>(&mut self, cells: impl IntoIterator<Item = T>) {
        let plain = cells.into_iter().map(|cell| (cell.into(), Paint::Plain));
        self.rows.push(plain.collect());
    }

    /// Adds a row of cells with colours.
    pub fn painted(&mut self, cells: impl IntoIterator<Item = (String, Paint)>) {
        self.rows.push(cells.into_iter().collect());
    }

    /// Renders the table for a terminal of `width` columns, if it is one.
    pub fn render(&self, width: Option<usize>) -> String {
        let widths = self.widths();
        let Some((_, leading)) = widths.split_last() else {
            return String::new();
        };
        let before_last: usize = leading.iter().map(|it| it + GAP).sum();
        let last = width.map(|width| width.saturating_sub(before_last).max(NARROWEST));
        let mut text = String::new();
        let headers = self.headers.iter();
        let headers: Vec<_> = headers.map(|it| ((*it).to_owned(), Paint::Plain)).collect();
        let has_headers = self.headers.iter().any(|it| !it.is_empty());
        for row in has_headers
            .then_some(&headers)
            .into_iter()
            .chain(&self.rows)
        {
            render_row(&mut text, row, leading, last);
        }
        text
    }

    fn widths(&self) -> Vec<usize> {
        let mut widths: Vec<usize> = self.headers.iter().map(|it| it.width()).collect();
        for row in &self.rows {
            for (width, (cell, _)) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.width());
            }
        }
        widths
    }
}

fn render_row(text: &mut String, row: &[(String, Paint)], leading: &[usize], last: Option<usize>) {
    let Some(((prose, prose_paint), cells)) = row.split_last() else {
        return;
    };
    let mut line = String::new();
    let mut indent = 0;
    for ((cell, cell_paint), width) in cells.iter().zip(leading) {
        line.push_str(&paint(cell, *cell_paint));
        line.push_str(&" ".repeat(width + GAP - cell.width()));
        indent += width + GAP;
    }
    for (at, part) in wrapped(prose, last).iter().enumerate() {
        if at > 0 {
            line.push('\n');
            line.push_str(&" ".repeat(indent));
        }
        line.push_str(&paint(part, *prose_paint));
    }
    text.push_str(line.trim_end());
    text.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let mut table = Table::new(&["NAME", "AGE", "MESSAGE"]);
        table.row([
            "embed",
            "3d",
            "waits for the target, which does not exist yet",
        ]);
        table.row(["größe", "12m", ""]);
        table
    }

    #[test]
    fn columns_align_and_no_line_ends_in_spaces() {
        assert_eq!(
            table().render(None),
            "NAME    AGE   MESSAGE\n\
             embed   3d    waits for the target, which does not exist yet\n\
             größe   12m\n"
        );
    }

    #[test]
    fn prose_fits_the_terminal() {
        assert_eq!(
            table().render(Some(40)),
            "NAME    AGE   MESSAGE\n\
             embed   3d    waits for the target,\n              \
             which does not exist yet\n\
             größe   12m\n"
        );
    }

    #[test]
    fn colours_take_no_width() {
        let mut table = Table::new(&["", ""]);
        table.painted([
            ("ok".to_owned(), Paint::Good),
            ("CRD".to_owned(), Paint::Plain),
        ]);
        assert_eq!(table.render(None), "\x1b[32mok\x1b[0m   CRD\n");
    }
}
