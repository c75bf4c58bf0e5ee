//! The options of `-o` for `throughline mount --help`, generated from their table.

use throughline_fuse::options::{CHOICES, Choices, Group, known};

/// Column of the explanations, in characters.
const COLUMN: usize = 26;
/// Maximum width of a line, in characters.
const WIDTH: usize = 98;

/// All options with their explanations.
pub(crate) fn options() -> String {
    let mut text =
        String::from("Options of -o, separated by commas; the last of conflicting options wins:\n");
    for group in Group::ALL {
        text.push_str(&format!("\n{}:\n", group.title()));
        let members = known().filter(|known| known.group == group);
        if group == Group::Ignored {
            let names: Vec<_> = members
                .map(|known| written(known.name, known.value))
                .chain(["x-*".to_owned()])
                .collect();
            entry(&mut text, "", &names.join(", "), 2);
            continue;
        }
        for known in members {
            entry(
                &mut text,
                &written(known.name, known.value),
                known.help,
                COLUMN,
            );
        }
    }
    text.push_str("\nwith=NAME and without=NAME switch FUSE features on and off:\n");
    let usual = Choices::default();
    for choice in CHOICES {
        let sign = if choice.is_made(&usual) {
            "with"
        } else {
            "without"
        };
        entry(
            &mut text,
            choice.name,
            &format!("{} ({sign} by default)", choice.help),
            COLUMN,
        );
    }
    text
}

fn written(name: &str, value: &str) -> String {
    match value {
        "" => name.to_owned(),
        optional if optional.starts_with('[') => format!("{name}{optional}"),
        value => format!("{name}={value}"),
    }
}

/// A name and its explanation, wrapped at [`WIDTH`], with the explanation starting at `column`.
fn entry(text: &mut String, name: &str, help: &str, column: usize) {
    let mut line = format!("  {name}");
    if line.len() >= column && !name.is_empty() {
        text.push_str(&line);
        text.push('\n');
        line.clear();
    }
    let mut empty = true;
    for word in help.split(' ') {
        if !empty && line.len() + 1 + word.len() > WIDTH {
            text.push_str(&line);
            text.push('\n');
            line.clear();
            empty = true;
        }
        if empty {
            line.push_str(&" ".repeat(column.saturating_sub(line.len())));
        } else {
            line.push(' ');
        }
        line.push_str(word);
        empty = false;
    }
    text.push_str(&line);
    text.push('\n');
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_option_is_explained_in_lines_that_fit() {
        let text = super::options();
        for known in throughline_fuse::options::known() {
            assert!(text.contains(known.name), "{}", known.name);
        }
        for line in text.lines() {
            assert!(line.len() <= 100, "{line}");
        }
    }
}
