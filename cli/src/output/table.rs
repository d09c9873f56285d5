//! Tables in the format of `kubectl get`: columns separated by three spaces, without lines.

use unicode_width::UnicodeWidthStr;

use super::{Paint, escaped, paint, wrapped};

const GAP: usize = 3;
/// The last column shrinks to this width first, then the others.
const NARROW_PROSE: usize = 24;
/// Minimum width of a column.
const NARROWEST: usize = 6;

/// A table. Cells are wrapped so that it fits the terminal, first those of the last column, which holds any prose.
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

    /// Adds a row of plain cells. Control characters are escaped.
    pub fn row<T: Into<String>>(&mut self, cells: impl IntoIterator<Item = T>) {
        self.painted(cells.into_iter().map(|cell| (cell.into(), Paint::Plain)));
    }

    /// Adds a row of cells with colours. Control characters are escaped.
    pub fn painted(&mut self, cells: impl IntoIterator<Item = (String, Paint)>) {
        let cells = cells.into_iter();
        let cells = cells.map(|(cell, paint)| (escaped(&cell).into_owned(), paint));
        self.rows.push(cells.collect());
    }

    /// Renders the table for a terminal of `width` columns, if it is one.
    pub fn render(&self, width: Option<usize>) -> String {
        let natural = self.widths();
        let widths = match width {
            Some(width) => fitted(&natural, width),
            None => natural,
        };
        let mut text = String::new();
        let headers = self.headers.iter();
        let headers: Vec<_> = headers.map(|it| ((*it).to_owned(), Paint::Plain)).collect();
        let has_headers = self.headers.iter().any(|it| !it.is_empty());
        for row in has_headers
            .then_some(&headers)
            .into_iter()
            .chain(&self.rows)
        {
            render_row(&mut text, row, &widths, width.is_some());
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

/// The column widths that fit into `width`, unless that is too narrow for all columns.
fn fitted(natural: &[usize], width: usize) -> Vec<usize> {
    let mut widths = natural.to_vec();
    let Some(last) = widths.len().checked_sub(1) else {
        return widths;
    };
    let room = width.saturating_sub(last * GAP);
    let leading: usize = widths[..last].iter().sum();
    let prose = room.saturating_sub(leading).max(NARROW_PROSE);
    widths[last] = widths[last].min(prose);
    while widths.iter().sum::<usize>() > room {
        let widest = widths.iter_mut().max_by_key(|it| **it);
        match widest.filter(|it| **it > NARROWEST) {
            Some(widest) => *widest -= 1,
            None => break,
        }
    }
    widths
}

fn render_row(text: &mut String, row: &[(String, Paint)], widths: &[usize], breaks: bool) {
    let cells = row.iter().zip(widths);
    let cells: Vec<_> = cells
        .map(|((cell, paint), width)| {
            let lines = wrapped(cell, breaks.then_some(*width));
            (lines, *paint, *width)
        })
        .collect();
    let height = cells.iter().map(|(lines, ..)| lines.len()).max();
    for at in 0..height.unwrap_or(0).max(1) {
        let mut line = String::new();
        // Spaces are written only before the next text, so that no line ends in spaces.
        let mut gap = 0;
        for (lines, colour, width) in &cells {
            let part = lines.get(at).map_or("", String::as_str);
            if !part.is_empty() {
                line.push_str(&" ".repeat(gap));
                line.push_str(&paint(part, *colour));
                gap = 0;
            }
            gap += width.saturating_sub(part.width()) + GAP;
        }
        text.push_str(&line);
        text.push('\n');
    }
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
    fn table_fits_a_narrow_terminal() {
        let mut table = Table::new(&["NAME", "TARGET", "ATTENTION"]);
        table.row([
            "a-rather-long-name-of-an-actor",
            "Deployment/llama",
            "PodsNotInjected",
        ]);
        assert_eq!(
            table.render(Some(40)),
            "NAME           TARGET        ATTENTION\n\
             a-rather-lon   Deployment/   PodsNotInje\n\
             g-name-of-an   llama         cted\n\
             -actor\n"
        );
        assert_eq!(fitted(&[30, 16, 15], 200), [30, 16, 15]);
        assert_eq!(fitted(&[9, 9, 9], 10), [6, 6, 6]);
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
