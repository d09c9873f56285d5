//! The tree as text.

use std::fmt::Write as _;

use super::decide::{Node, NodeState};
use crate::output::{Paint, paint, wrapped};

/// If there is less room than this next to the name, the detail moves to the next line.
const NARROWEST: usize = 24;

/// One line per node, or more if a detail is too long for the terminal.
pub fn text(tree: &Node, width: Option<usize>) -> String {
    let mut text = String::new();
    write(&mut text, tree, "", "", width);
    text
}

/// Writes a node after `lead`, and its continuation lines and children after `indent`.
fn write(text: &mut String, node: &Node, lead: &str, indent: &str, width: Option<usize>) {
    let colour = match node.state {
        NodeState::Good => Paint::Good,
        NodeState::Waiting => Paint::Warning,
        NodeState::Bad => Paint::Bad,
        NodeState::Plain => Paint::Plain,
    };
    let _ = write!(text, "{lead}{}", node.name);
    let taken = lead.chars().count() + node.name.chars().count() + 3;
    let beside = width.is_none_or(|width| taken + NARROWEST <= width);
    let column = if beside {
        taken
    } else {
        indent.chars().count() + 3
    };
    let room = width.map(|width| width.saturating_sub(column));
    for (at, line) in wrapped(&node.detail, room).iter().enumerate() {
        if at == 0 && beside {
            text.push_str("   ");
        } else {
            let stem = if node.children.is_empty() { " " } else { "│" };
            let gap = column.saturating_sub(indent.chars().count() + 1);
            let _ = write!(text, "\n{indent}{stem}{}", " ".repeat(gap));
        }
        text.push_str(&paint(line, colour));
    }
    text.push('\n');
    for (at, child) in node.children.iter().enumerate() {
        let is_last = at + 1 == node.children.len();
        let (branch, stem) = if is_last {
            ("└─ ", "   ")
        } else {
            ("├─ ", "│  ")
        };
        write(
            text,
            child,
            &format!("{indent}{branch}"),
            &format!("{indent}{stem}"),
            width,
        );
    }
}
