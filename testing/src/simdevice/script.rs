//! Counts requests and decides what happens to the next one.

use std::sync::Arc;

use throughline_device::{Op, Request};

use super::{Fault, Logged};

pub(super) struct Script {
    pub(super) fault: Fault,
    pub(super) only: Option<Vec<Op>>,
    pub(super) filter: Option<Arc<super::Filter>>,
    pub(super) seed: u64,
    pub(super) log: Option<Vec<Logged>>,
    pub(super) requests: u64,
    pub(super) failed: u64,
}

/// What happens to a request.
pub(super) enum Verdict {
    Pass,
    Refuse,
    FailAfterDone,
    /// Reported as done, but never carried out.
    Lose,
    /// The bits of a random number determine what happens to each block.
    Tear(Random),
}

impl Script {
    pub(super) fn new(fault: Fault) -> Script {
        Script {
            fault,
            only: None,
            filter: None,
            seed: 0,
            log: None,
            requests: 0,
            failed: 0,
        }
    }

    /// Counts and logs a request, and returns its verdict.
    pub(super) fn next(&mut self, request: &Request) -> Verdict {
        let verdict = self.decide(request);
        let failed = !matches!(verdict, Verdict::Pass | Verdict::Lose);
        self.failed += u64::from(failed);
        if let Some(log) = &mut self.log {
            log.push(Logged {
                op: request.op(),
                offset_bytes: request.offset_bytes(),
                len_bytes: request.len_bytes(),
                fua: request.fua(),
                failed,
            });
        }
        verdict
    }

    fn decide(&mut self, request: &Request) -> Verdict {
        let other = self
            .only
            .as_ref()
            .is_some_and(|only| !only.contains(&request.op()));
        if other || self.filter.as_ref().is_some_and(|filter| !filter(request)) {
            return Verdict::Pass;
        }
        let n = self.requests;
        self.requests += 1;
        match self.fault {
            Fault::Once(at) if n == at => Verdict::Refuse,
            Fault::From(at) if n >= at => Verdict::Refuse,
            Fault::AfterDone(at) if n == at => Verdict::FailAfterDone,
            Fault::Some(in_1000) if self.dice(n) % 1000 < u64::from(in_1000) => Verdict::Refuse,
            Fault::Lost => Verdict::Lose,
            Fault::Torn(at) if n == at => Verdict::Tear(Random(self.seed ^ n.rotate_left(32))),
            _ => Verdict::Pass,
        }
    }

    fn dice(&self, n: u64) -> u64 {
        Random(self.seed ^ n.rotate_left(32)).next()
    }
}

/// SplitMix64: random enough for tearing, and the same on every machine.
pub(super) struct Random(u64);

impl Random {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }
}
