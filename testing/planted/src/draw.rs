//! Which of the points get a bug: as many of each crate, at most one of a function.

use std::collections::BTreeSet;

use crate::points::Point;

/// The points of a crate that are still to be drawn, with the file of each.
pub struct Urn {
    points: Vec<(usize, Point)>,
    /// The functions, by file, of which a point was drawn.
    used: BTreeSet<(usize, usize)>,
}

impl Urn {
    /// The same points and seed give the same draws.
    pub fn new(mut points: Vec<(usize, Point)>, seed: &mut u64) -> Self {
        for last in (1..points.len()).rev() {
            let other = next(seed) % (last as u64 + 1);
            points.swap(last, other as usize);
        }
        Self {
            points,
            used: BTreeSet::new(),
        }
    }

    pub fn draw(&mut self) -> Option<(usize, Point)> {
        loop {
            let (file, point) = self.points.pop()?;
            if self.used.insert((file, point.function)) {
                return Some((file, point));
            }
        }
    }
}

/// The generator splitmix64.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mixed = (*state ^ (*state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}
