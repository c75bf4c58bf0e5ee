//! The end of a search: the commit found is measured against the one before it. Is it the culprit, and how
//! large is its change?
//!
//! These are two questions. Often it is certain after a few pairs that a commit made more than half of the
//! change, but the interval is still wide: "more than 2 %", not "4.5 %". So once the commit is confirmed,
//! both are measured further, until the size is known well enough or there are `size_pairs` pairs.

use super::super::bench::{Tried, Trouble};
use super::super::evidence::{Evidence, KNOWN, Question};
use super::super::result::{Answer, Found, Trial};
use super::{MIDDLE_SHARE, Search};
use crate::Result;
use crate::stats::Verdict;

impl Search<'_> {
    /// Measures the commit found against the one before it.
    pub(super) fn confirm(&mut self, range: &[String]) -> Result<Found> {
        let alpha = self.budget.take(1) / 2.0;
        let culprit = self.bench.commit(&self.bad.clone())?;
        let mut before = self.latest_good()?;
        if let ([_], Some(parent)) = (range, culprit.parents.first()) {
            before.clone_from(parent);
        }
        // Did it make more than half of the change?
        let end = self.end_level.value;
        let nearby_percent = 100.0 * (1.0 - end).abs() * MIDDLE_SHARE;
        let question = Question::new(end.sqrt(), nearby_percent, alpha);
        let mut beside = self.gather(&before, &culprit.id, self.asking(&question), 0);
        if matches!(&beside, Err(Trouble::Commit(fault)) if fault.id == before) {
            // A commit assumed to be good was not measured. On a branch from before the good end, it may not
            // build.
            before = self.latest_good()?;
            beside = self.gather(&before, &culprit.id, self.asking(&question), 0);
        }
        let evidence = self.needed(beside)?;
        let confirmed = evidence.pairs.decided() == Some(Verdict::Slower)
            || self.made_any(&before, &culprit.id, alpha) == Some(Verdict::Slower);
        let mut trial = Trial::of(&evidence);
        if confirmed {
            match self.size(&before, &culprit.id, evidence.pairs.pairs()) {
                Ok(size) => trial = size.map_or(trial, |size| Trial::of(&size)),
                // Without more pairs, the size is less certain.
                Err(Trouble::Commit(_)) => {}
                Err(Trouble::Bisection(error)) => return Err(error),
            }
        }
        trial.beside = Some(self.bench.commit(&before)?);
        let mut suspects = Vec::new();
        for id in self.in_order(range)? {
            suspects.push(self.bench.commit(&id)?);
        }
        let verdict = match (suspects.len(), confirmed) {
            (1, true) => Answer::Commit,
            (1, false) => Answer::Unconfirmed,
            (_, _) => Answer::Several,
        };
        Ok(Found {
            verdict,
            suspects,
            trial,
        })
    }

    /// Whether a commit made any of the change, according to the existing pairs of it and the one before.
    fn made_any(&self, before: &str, id: &str, alpha: f64) -> Option<Verdict> {
        let mut evidence = self.asking(&Question::new(1.0, 0.0, alpha));
        for (base, new) in self.bench.state.pairs(id, before) {
            evidence.push(base, new);
        }
        evidence.pairs.decided()
    }

    /// Measures both further, until the size of the change is known well enough. Returns `None` if there are
    /// `size_pairs` pairs already.
    fn size(&mut self, before: &str, id: &str, pairs: usize) -> Tried<Option<Evidence>> {
        let terms = &self.bench.plan.terms;
        if terms.size_pairs as usize <= pairs {
            return Ok(None);
        }
        let question = Question::new(1.0, 0.0, terms.alpha());
        let evidence = Evidence::about(&question, terms.better, terms.size_pairs, KNOWN);
        let short = self.bench.commit(id)?.short;
        let note =
            format!("{short} is confirmed; measuring further to determine the size of its change");
        self.bench.watch.note(&note);
        self.gather(before, id, evidence, 0).map(Some)
    }
}
