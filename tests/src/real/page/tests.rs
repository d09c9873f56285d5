#![allow(clippy::unwrap_used)]

use super::Page;

#[test]
fn commands_of_the_readme_are_those_of_the_quickstart() {
    let [readme, quickstart] =
        ["README.md", "docs/quickstart.md"].map(|name| Page::read(name).unwrap());
    let tested = quickstart.commands("");
    let shown = readme.commands("Quickstart");
    assert!(shown.len() > 10, "{shown:?}");
    for command in shown {
        assert!(tested.contains(&command), "{command}");
    }
}

#[test]
fn continued_lines_are_one_command_and_sections_end_at_the_next() {
    let text =
        "## One\n```\na \\\n  b\n\nc\n```\nThis prints\n`x`.\n## Two\n```\nd\n```\n".to_owned();
    let text = format!("# Page\n{text}");
    let page = Page { name: "page", text };
    assert_eq!(page.sections().collect::<Vec<_>>(), ["One", "Two"]);
    assert_eq!(page.commands("One"), ["a    b", "c"]);
    assert_eq!(page.commands(""), ["a    b", "c", "d"]);
    assert_eq!(page.quoted("One", "prints"), Some("x"));
    assert_eq!(page.quoted("Two", "prints"), None);
}
