//! Formatting of figures: four significant digits, units, and only characters that every mail reader shows.

use std::ops::Range;

/// A figure with four significant digits.
pub fn figure(value: f64) -> String {
    let magnitude = value.abs();
    if value.is_nan() {
        return "no number".into();
    }
    if value.is_infinite() {
        return if value > 0.0 { "infinite" } else { "-infinite" }.into();
    }
    if magnitude != 0.0 && !(1e-4..1e15).contains(&magnitude) {
        return format!("{value:.3e}");
    }
    if value.fract() == 0.0 {
        return format!("{value:.0}");
    }
    let before_point = magnitude.log10().floor();
    let decimals = (3.0 - before_point).clamp(0.0, 7.0) as usize;
    format!("{value:.decimals$}")
}

/// Like [`figure`], without trailing zeros after the point, for sentences.
pub fn short(value: f64) -> String {
    let text = figure(value);
    match text.contains('.') && !text.contains('e') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

/// A number of bytes in the largest fitting binary unit.
pub fn bytes(count: u64) -> String {
    const UNITS: &[&str] = &["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let mut value = count as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{} {}", short(value), UNITS[unit])
}

/// A time given in microseconds.
pub fn micros(us: f64) -> String {
    match us.abs() {
        m if m < 1e3 => format!("{} us", short(us)),
        m if m < 1e6 => format!("{} ms", short(us / 1e3)),
        _ => format!("{} s", short(us / 1e6)),
    }
}

/// Rows of cells as lines, with two spaces between columns, each as wide as its widest cell. The columns
/// `right` are aligned to the right.
pub fn aligned(rows: &[Vec<String>], right: Range<usize>) -> Vec<String> {
    let cells = |column: usize| rows.iter().filter_map(move |row| row.get(column));
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column| {
        cells(column)
            .map(|cell| cell.chars().count())
            .max()
            .unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let line = |row: &Vec<String>| {
        let padded = row.iter().zip(&widths).enumerate();
        let padded = padded.map(|(column, (cell, width))| match right.contains(&column) {
            true => format!("{cell:>width$}"),
            false => format!("{cell:<width$}"),
        });
        padded.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_four_digits() {
        let shown = [
            0.0,
            1.0,
            135.677,
            1_234_567.8,
            0.012_34,
            -2.5,
            1e-9,
            f64::NAN,
            f64::INFINITY,
        ];
        let shown = shown.map(figure);
        let wanted = [
            "0",
            "1",
            "135.7",
            "1234568",
            "0.01234",
            "-2.500",
            "1.000e-9",
            "no number",
            "infinite",
        ];
        assert_eq!(shown, wanted);
        assert_eq!(bytes(256 << 10), "256 KiB");
        assert_eq!(bytes(4608), "4.5 KiB");
        assert_eq!([0.99, 10.0, 1e-9].map(short), ["0.99", "10", "1.000e-9"]);
        assert_eq!(micros(2000.0), "2 ms");
    }
}
