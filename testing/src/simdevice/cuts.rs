//! Which power cuts of a record are tried, and the states that they leave.

use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use super::image::Image;
use super::record::{Cut, Keep, Record};

impl Record {
    /// `many` cuts: a third right after barriers, with everything or nothing that was not durable; a third at
    /// barriers with a random part of it; a third anywhere.
    pub fn cuts(&self, many: usize, seed: u64) -> Vec<Cut> {
        let mut random = fastrand::Rng::with_seed(seed);
        let barriers = self.barriers();
        let plain =
            |at: &usize| [Keep::Nothing, Keep::Everything].map(|keep| Cut { at: *at, keep });
        let mut cuts: Vec<Cut> = barriers.iter().flat_map(plain).collect();
        random.shuffle(&mut cuts);
        cuts.truncate(many / 3);
        while cuts.len() < many {
            let barrier = random
                .choice(&barriers)
                .filter(|_| cuts.len() < many * 2 / 3);
            let at = match barrier {
                Some(barrier) => *barrier,
                None => random.usize(..=self.end()),
            };
            let keep = match random.u8(..8) {
                0 => Keep::Everything,
                _ => Keep::Some(random.u64(..)),
            };
            cuts.push(Cut { at, keep });
        }
        cuts.sort_by_key(|cut| cut.at);
        cuts
    }

    /// Passes each distinct state that these cuts leave to `judge`. Returns their number. A panic of `judge`
    /// is passed on, with `what` and the cut on standard error.
    pub fn judge_states(&self, cuts: Vec<Cut>, what: &str, judge: impl Fn(&Image)) -> usize {
        let mut states = self.states();
        let mut seen = HashSet::new();
        for cut in cuts {
            let state = states.state(cut);
            if !seen.insert(state.fingerprint(self.base())) {
                continue;
            }
            if let Err(why) = catch_unwind(AssertUnwindSafe(|| judge(&state))) {
                eprintln!("{what}, {cut:?} of {}", self.end());
                resume_unwind(why);
            }
        }
        seen.len()
    }
}
