//! Names in columns, sorted downwards, as `ls` prints them on a terminal.

use term_grid::{Direction, Filling, Grid, GridOptions};

/// The width if the terminal does not report one.
const USUAL_WIDTH: usize = 80;

/// Columns of the terminal; `COLUMNS` takes precedence.
pub(super) fn width() -> usize {
    let given = std::env::var("COLUMNS").ok();
    let given = given.and_then(|columns| columns.parse().ok());
    given
        .filter(|columns| *columns > 0)
        .or_else(|| terminal_size::terminal_size().map(|(width, _)| width.0.into()))
        .unwrap_or(USUAL_WIDTH)
}

/// The lines. Cells may contain colour sequences.
pub(super) fn lines(cells: Vec<String>, width: usize) -> String {
    let options = GridOptions {
        filling: Filling::Spaces(2),
        direction: Direction::TopToBottom,
        width,
    };
    let lines = Grid::new(cells, options).to_string();
    // Remove trailing blanks.
    lines
        .lines()
        .map(|line| format!("{}\n", line.trim_end()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_go_down_the_columns() {
        let cells: Vec<String> = ["a", "bb", "ccc", "d"].map(str::to_owned).to_vec();
        assert_eq!(lines(cells.clone(), 9), "a   ccc\nbb  d\n");
        assert_eq!(lines(cells, 1), "a\nbb\nccc\nd\n");
    }
}
