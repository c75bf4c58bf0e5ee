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

/// A cell of a table.
pub(super) struct Cell {
    text: String,
    is_right: bool,
}

impl Cell {
    /// A left-aligned text.
    pub(super) fn left(text: impl ToString) -> Cell {
        let text = text.to_string();
        Cell {
            text,
            is_right: false,
        }
    }

    /// A right-aligned number.
    pub(super) fn right(text: impl ToString) -> Cell {
        let text = text.to_string();
        Cell {
            text,
            is_right: true,
        }
    }
}

/// Rows as lines, each column as wide as its widest cell, and a space between columns. All rows have the same
/// number of cells.
pub(super) fn aligned(rows: &[Vec<Cell>]) -> Vec<String> {
    let width = |column: usize| {
        let widths = rows.iter().map(|row| row[column].text.chars().count());
        widths.max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..rows.first().map_or(0, Vec::len)).map(width).collect();
    let cell = |(cell, width): (&Cell, &usize)| match cell.is_right {
        true => format!("{:>width$}", cell.text),
        false => format!("{:<width$}", cell.text),
    };
    let line = |row: &Vec<Cell>| {
        row.iter()
            .zip(&widths)
            .map(cell)
            .collect::<Vec<_>>()
            .join(" ")
    };
    rows.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_end_and_texts_begin_together() {
        let rows = [
            vec![Cell::left("a"), Cell::right(10), Cell::left("x")],
            vec![Cell::left("bb"), Cell::right(9), Cell::left("")],
        ];
        assert_eq!(aligned(&rows), ["a  10 x", "bb  9  "]);
        assert!(aligned(&[]).is_empty());
    }

    #[test]
    fn names_go_down_the_columns() {
        let cells: Vec<String> = ["a", "bb", "ccc", "d"].map(str::to_owned).to_vec();
        assert_eq!(lines(cells.clone(), 9), "a   ccc\nbb  d\n");
        assert_eq!(lines(cells, 1), "a\nbb\nccc\nd\n");
    }
}
