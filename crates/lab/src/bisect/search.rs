//! [`Search`]: the bisection itself. It measures the ends, then halves the range, then measures the commit
//! found against the one before it (`confirm`).
//!
//! The side of a level on which a commit lies classifies it as good or bad. The level is half-way between
//! those of the two ends. If one commit made the whole change, all others lie at one of the ends. If several
//! commits made it, the search finds the one at which the level is crossed. That is the largest if it made
//! more than half of the change.
//!
//! Invariants:
//! - The total probability of a wrong answer is bounded. Each decision takes its share from [`Budget`], which
//!   holds the error probability that the user allows.
//! - A commit that cannot be classified with that certainty is passed over, like one that cannot be built. It
//!   is never guessed.

mod confirm;

use std::collections::{BTreeMap, BTreeSet};

use super::bench::{Bench, Tried, Trouble};
use super::choose::{choose, decisions};
use super::evidence::{Evidence, Level, Question};
use super::result::{Answer, Found, Mark, Outcome, Step, Trial};
use crate::record::Machine;
use crate::stats::{Summary, Until, Verdict, ratio};
use crate::{Error, Result};

/// A commit within this distance of the half-way level, as a share of the change, lies at neither end.
const MIDDLE_SHARE: f64 = 0.25;

/// The remaining error probability.
pub(super) struct Budget {
    left: f64,
    spent: f64,
}

impl Budget {
    /// A budget of this total.
    pub(super) fn of(alpha: f64) -> Budget {
        Budget {
            left: alpha,
            spent: 0.0,
        }
    }

    /// Takes the share of one decision, if this many have equal shares of what is left.
    fn take(&mut self, decisions: usize) -> f64 {
        let share = self.left / decisions.max(1) as f64;
        self.left -= share;
        self.spent += share;
        share
    }

    /// Confidence in all answers given so far, together.
    pub(super) fn confidence(&self) -> f64 {
        1.0 - self.spent
    }
}

/// A bisection in progress.
pub(super) struct Search<'a> {
    /// Builds and measures.
    pub(super) bench: Bench<'a>,
    /// The remaining error probability.
    pub(super) budget: Budget,
    /// The bad end.
    end: String,
    /// The level of the bad end.
    end_level: Level,
    /// The levels that count as good and as bad, relative to the good end.
    levels: (f64, f64),
    /// Commits that count as good; the last one is the latest.
    good: Vec<String>,
    /// The first commit that counts as bad.
    bad: String,
    /// All commits examined.
    steps: Vec<Step>,
}

impl<'a> Search<'a> {
    /// A search between the plan's ends.
    pub(super) fn new(bench: Bench<'a>) -> Search<'a> {
        let nothing = Level {
            value: 1.0,
            low: f64::NEG_INFINITY,
            high: f64::INFINITY,
            confidence: 1.0,
        };
        let plan = bench.plan;
        Search {
            end: plan.bad.clone(),
            end_level: nothing,
            levels: (1.0, 1.0),
            good: vec![plan.good.clone()],
            bad: plan.bad.clone(),
            steps: Vec::new(),
            budget: Budget::of(plan.terms.alpha()),
            bench,
        }
    }

    /// Finds the commit.
    pub(super) fn run(mut self) -> Result<Outcome> {
        let range = self.range()?;
        let all = range.len();
        self.outlook(1, all);
        if let Some(found) = self.ends(decisions(all) + 2)? {
            return self.outcome(found, all);
        }
        let mut range = range;
        loop {
            let skipped = self.passed_over();
            let Some(next) = choose(&range, &self.bad, &skipped).cloned() else {
                break;
            };
            self.outlook(self.steps.len() + 2, range.len());
            self.sort(&next, decisions(range.len()) + 1)?;
            self.tidy()?;
            range = self.range()?;
        }
        self.outlook(self.steps.len() + 2, 1);
        let found = self.confirm(&range)?;
        self.outcome(found, all)
    }

    /// The commits that may have made the change, best bisection candidates first.
    fn range(&self) -> Result<Vec<String>> {
        let first_parent = self.bench.plan.terms.first_parent;
        self.bench.git.suspects(&self.bad, &self.good, first_parent)
    }

    fn passed_over(&self) -> BTreeSet<String> {
        let over = self.steps.iter().filter(|step| step.mark.is_passed_over());
        over.map(|step| step.commit.id.clone()).collect()
    }

    /// These commits, oldest first.
    fn in_order(&self, commits: &[String]) -> Result<Vec<String>> {
        let good = &self.bench.plan.good;
        self.bench.git.in_order(commits, good, &self.end)
    }

    /// Sets the overall progress, with `suspects` commits left.
    fn outlook(&mut self, step: usize, suspects: usize) {
        let steps = step + decisions(suspects) + usize::from(suspects > 1);
        self.bench.step = format!("step {step} of about {steps}: ");
    }

    /// Measures the bad end against the good one. Returns `Some` if there is nothing to search for.
    fn ends(&mut self, decisions: usize) -> Result<Option<Found>> {
        self.check_pairs(decisions)?;
        // There are two questions. Does the bad end differ from the good one? And, if the interval leaves the
        // size open: by more than half of the apparent difference?
        let alpha = self.budget.take(decisions) / 2.0;
        let plan = self.bench.plan;
        let (good, end) = (plan.good.clone(), self.end.clone());
        let question = Question::new(1.0, plan.terms.threshold, alpha);
        let gathered = self.gather(&good, &end, self.asking(&question), 0);
        let evidence = self.needed(gathered)?;
        self.end_level = evidence.level();
        let trial = Trial::of(&evidence);
        let note = format!("the bad end: {}", trial.change());
        let nothing = |verdict| {
            let suspects = Vec::new();
            Ok(Some(Found {
                verdict,
                suspects,
                trial,
            }))
        };
        match evidence.pairs.decided() {
            Some(Verdict::Slower) => {}
            Some(Verdict::Faster) => return nothing(Answer::Better),
            Some(Verdict::NoDifference) => return nothing(Answer::NoDifference),
            Some(Verdict::NotEnough) | None => return nothing(Answer::NotEnough),
        }
        self.levels.1 = self.end_level.value;
        let middle = self.middle();
        if !self.end_level.excludes(middle) {
            let question = Question::new(middle, 0.0, alpha);
            let asking = self.asking(&question);
            let gathered = self.gather(&good, &end, asking, evidence.pairs.pairs());
            let sure = self.needed(gathered)?;
            if sure.pairs.decided() != Some(Verdict::Slower) {
                return nothing(Answer::TooVague);
            }
        }
        self.bench.watch.note(&note);
        Ok(None)
    }

    /// The geometric mean of the good and the bad level.
    fn middle(&self) -> f64 {
        (self.levels.0 * self.levels.1).sqrt()
    }

    /// The error if a commit that is essential to the search could not be built or measured.
    fn needed<T>(&mut self, tried: Tried<T>) -> Result<T> {
        let fault = match tried {
            Ok(done) => return Ok(done),
            Err(Trouble::Bisection(error)) => return Err(error),
            Err(Trouble::Commit(fault)) => fault,
        };
        let what = match &fault.id {
            id if *id == self.bench.plan.good => "the good end",
            id if *id == self.end => "the bad end",
            _ => "a commit that is needed",
        };
        let name = self.bench.commit(&fault.id)?.short;
        Err(Error::new(format!("{what}, {name}: {}", fault.why)))
    }

    /// An error if the number of pairs can never give this confidence.
    fn check_pairs(&self, decisions: usize) -> Result<()> {
        let terms = &self.bench.plan.terms;
        let question = Question::new(1.0, 0.0, terms.alpha() / decisions as f64 / 2.0);
        let fewest = question.in_ratios(terms.better).fewest_pairs();
        if terms.max_pairs as usize >= fewest {
            return Ok(());
        }
        Err(Error::new(format!(
            "{} pairs are too few for this confidence: allow at least {fewest} (--max-pairs), or lower \
             --confidence",
            terms.max_pairs
        )))
    }

    /// Evidence for a question, without pairs so far.
    fn asking(&self, question: &Question) -> Evidence {
        let terms = &self.bench.plan.terms;
        Evidence::about(question, terms.better, terms.max_pairs, Until::Certain)
    }

    /// Measures pairs of `new` against `base` until `evidence` suffices or has the maximum number. The first
    /// `from` pairs of the two commits are not used.
    fn gather(
        &mut self,
        base: &str,
        new: &str,
        mut evidence: Evidence,
        from: usize,
    ) -> Tried<Evidence> {
        let commit = self.bench.commit(new)?;
        while evidence.pairs.wants_more() {
            self.bench.watch.check()?;
            let pairs = evidence.pairs.pairs();
            let (pair, most) = (pairs + 1, evidence.pairs.max_pairs());
            self.bench
                .doing(&format!("{}, pair {pair} of at most {most}", commit.short));
            let (base, new) = self.bench.pair(base, new, from + pairs)?;
            evidence.push(base, new);
        }
        Ok(evidence)
    }

    /// Decides on which side a commit lies.
    fn sort(&mut self, id: &str, decisions: usize) -> Result<Mark> {
        // Two questions may be needed: against the good end, and against the bad one.
        let alpha = self.budget.take(decisions) / 2.0;
        let asked = self.middle();
        let gap = (self.levels.0 - self.levels.1).abs();
        let nearby_percent = 100.0 * gap * MIDDLE_SHARE;
        let question = Question::new(asked, nearby_percent, alpha);
        let good = self.bench.plan.good.clone();
        let evidence = match self.gather(&good, id, self.asking(&question), 0) {
            Err(Trouble::Commit(fault)) if fault.id == id => {
                return self.note(id, Mark::Skipped, None, Some(fault.why));
            }
            gathered => self.needed(gathered)?,
        };
        let level = evidence.level();
        let mark = match evidence.pairs.decided() {
            Some(Verdict::Faster) => Mark::Good,
            Some(Verdict::Slower) => Mark::Bad,
            Some(Verdict::NoDifference) => Mark::Between,
            Some(Verdict::NotEnough) | None => {
                self.sort_beside_the_bad_end(id, &question, &level)?
            }
        };
        let why = self.take_side(id, mark, &level, evidence.pairs.pairs());
        self.note(id, mark, Some(level), why)
    }

    /// Narrows the range by a classified commit. Returns a remark, if any.
    fn take_side(&mut self, id: &str, mark: Mark, level: &Level, pairs: usize) -> Option<String> {
        let to_good = match mark {
            Mark::Good => true,
            Mark::Bad => false,
            Mark::Between => self.is_nearer_to_good(level),
            _ => return Some(format!("{pairs} pairs do not show on which side it is")),
        };
        if to_good {
            self.good.push(id.to_owned());
            if level.excludes(self.levels.0) {
                self.levels.0 = level.value;
            }
        } else {
            id.clone_into(&mut self.bad);
            if level.excludes(self.levels.1) {
                self.levels.1 = level.value;
            }
        }
        let side = if to_good { "good" } else { "bad" };
        (mark == Mark::Between).then(|| format!("between good and bad; nearer to {side}"))
    }

    fn is_nearer_to_good(&self, level: &Level) -> bool {
        let distance = |from: f64| (level.value / from).ln().abs();
        distance(self.levels.0) < distance(self.levels.1)
    }

    /// Asks the same question with pairs against the bad end.
    fn sort_beside_the_bad_end(
        &mut self,
        id: &str,
        question: &Question,
        level: &Level,
    ) -> Result<Mark> {
        let (end, end_level) = (self.end.clone(), self.end_level.value);
        if end == id {
            return Ok(Mark::Unclear);
        }
        let asked = question.asked / end_level;
        let question = Question { asked, ..*question };
        let evidence = match self.gather(&end, id, self.asking(&question), 0) {
            Err(Trouble::Commit(fault)) if fault.id == id => return Ok(Mark::Unclear),
            gathered => self.needed(gathered)?,
        };
        let beside = evidence.level();
        Ok(match evidence.pairs.decided() {
            Some(Verdict::Faster) => Mark::Good,
            Some(Verdict::Slower) => Mark::Bad,
            Some(Verdict::NoDifference) => Mark::Between,
            // Certainly at neither end.
            _ if level.excludes(self.levels.0) && beside.excludes(self.levels.1 / end_level) => {
                Mark::Between
            }
            _ => Mark::Unclear,
        })
    }

    /// Records the result for a commit and reports it.
    fn note(
        &mut self,
        id: &str,
        mark: Mark,
        level: Option<Level>,
        why: Option<String>,
    ) -> Result<Mark> {
        let step = self.step(id, mark, level, why)?;
        let level = step
            .level
            .map(|level| format!(" {level}"))
            .unwrap_or_default();
        let why = step
            .why
            .as_ref()
            .map(|why| format!(": {why}"))
            .unwrap_or_default();
        let (number, short) = (&self.bench.step, &step.commit.short);
        let note = format!("{number}{short} {}{level}{why}", mark.name());
        self.bench.watch.note(&note);
        self.steps.push(step);
        Ok(mark)
    }

    /// Removes worktrees that are no longer needed. Those of the ends and of the range's limits stay.
    fn tidy(&mut self) -> Result<()> {
        let (good, latest) = (self.good.first(), self.good.last());
        let kept: Vec<&str> = [Some(&self.end), Some(&self.bad), good, latest]
            .into_iter()
            .flatten()
            .map(String::as_str)
            .collect();
        self.bench.warm.retain(|id| kept.contains(&id.as_str()));
        self.bench.trees.keep_only(self.bench.git, &kept)
    }

    /// The good commit nearest to the first bad one.
    fn latest_good(&self) -> Result<String> {
        for id in self.good.iter().rev() {
            if self.bench.git.is_ancestor(id, &self.bad)? {
                return Ok(id.clone());
            }
        }
        Ok(self.bench.plan.good.clone())
    }

    /// A commit, with all its figures so far.
    fn step(
        &mut self,
        id: &str,
        mark: Mark,
        level: Option<Level>,
        why: Option<String>,
    ) -> Result<Step> {
        let state = &self.bench.state;
        let (base, new): (Vec<f64>, Vec<f64>) =
            state.pairs(id, &self.bench.plan.good).into_iter().unzip();
        Ok(Step {
            figures: Summary::of(&state.values(id)),
            ratio: ratio(&new, &base),
            commit: self.bench.commit(id)?,
            mark,
            level,
            why,
        })
    }

    /// The complete result.
    fn outcome(mut self, found: Found, commits: usize) -> Result<Outcome> {
        let (good, end) = (self.bench.plan.good.clone(), self.end.clone());
        let mut rows = BTreeMap::new();
        for (id, mark) in [(good, Mark::GoodEnd), (end, Mark::BadEnd)] {
            rows.insert(id.clone(), self.step(&id, mark, None, None)?);
        }
        // The commits may have been measured again, against other commits.
        for old in std::mem::take(&mut self.steps) {
            let id = old.commit.id;
            rows.insert(id.clone(), self.step(&id, old.mark, old.level, old.why)?);
        }
        let ids: Vec<String> = rows.keys().cloned().collect();
        let order = self.in_order(&ids).unwrap_or(ids);
        let unsure = [Answer::Unconfirmed, Answer::NotEnough, Answer::TooVague];
        let mut outcome = Outcome {
            confidence: (!unsure.contains(&found.verdict)).then_some(self.budget.confidence()),
            found,
            bad_level: self.end_level,
            commits,
            steps: order.iter().filter_map(|id| rows.remove(id)).collect(),
            notes: Vec::new(),
            plan: self.bench.plan.clone(),
            state: self.bench.state.folder().to_owned(),
            machine: Machine::here(),
        };
        outcome.take_notes();
        Ok(outcome)
    }
}
