//! An [`Outcome`] as text: the answer, then all steps, one per line, in the format of report 5.

use std::fmt;

use throughline_explain::text::aligned;

use super::evidence::Level;
use super::git::Commit;
use super::result::{Answer, Mark, Outcome, Step, Trial, percent, percent_and_sure, sure};

/// The longest subject shown in full in a table.
const SUBJECT_LEN: usize = 60;

/// Text of a commit, without control characters.
fn plain(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).collect()
}

fn subject(commit: &Commit) -> String {
    let text = plain(&commit.subject);
    if text.chars().count() <= SUBJECT_LEN {
        return text;
    }
    let mut short: String = text.chars().take(SUBJECT_LEN - 1).collect();
    short.push('…');
    short
}

fn commit_lines(f: &mut fmt::Formatter<'_>, commit: &Commit) -> fmt::Result {
    writeln!(f, "    commit {}", commit.id)?;
    writeln!(f, "    Author: {}", plain(&commit.author))?;
    writeln!(f, "    Date:   {}", commit.date)?;
    writeln!(f, "    {}", plain(&commit.subject))
}

fn beside(trial: &Trial) -> String {
    trial
        .beside
        .as_ref()
        .map_or_else(|| "the good end".to_owned(), |commit| commit.short.clone())
}

impl Outcome {
    fn answer(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (trial, suspects) = (&self.found.trial, &self.found.suspects);
        let (change, seen) = (trial.change(), seen(trial));
        let culprit = suspects.last().map_or("", |commit| &commit.short);
        match self.found.verdict {
            Answer::Commit => writeln!(f, "{culprit} is the commit that made it worse:")?,
            Answer::Unconfirmed => writeln!(
                f,
                "the bisection ends at {culprit}, but this is not confirmed:"
            )?,
            Answer::Several => writeln!(
                f,
                "one of these {} commits made it worse; it could not be determined which one:",
                suspects.len()
            )?,
            Answer::NoDifference => writeln!(
                f,
                "no difference between good and bad larger than the threshold: {change}; {seen} could have \
                 been detected"
            )?,
            Answer::NotEnough => writeln!(
                f,
                "it could not be shown whether good and bad differ: {change}; {seen} could have been \
                 detected. More pairs (--max-pairs), a quieter machine or a steadier measurement would detect \
                 smaller differences"
            )?,
            Answer::TooVague => writeln!(
                f,
                "good and bad differ, but the size of the difference is not known well enough to classify \
                 commits: {change}. More pairs (--max-pairs) or a steadier measurement would help"
            )?,
            Answer::Better => writeln!(f, "the bad end is better than the good end: {change}")?,
        }
        match &suspects[..] {
            [] => return Ok(()),
            [one] => commit_lines(f, one)?,
            several => several
                .iter()
                .try_for_each(|one| writeln!(f, "    {} {}", one.short, subject(one)))?,
        }
        writeln!(f, "{culprit} compared with {}: {change}", beside(trial))
    }

    fn tail(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if matches!(self.found.verdict, Answer::Commit | Answer::Several) {
            writeln!(
                f,
                "the bad end compared with the good end: {}",
                percent_and_sure(&self.bad_level)
            )?;
        }
        if let Some(confidence) = self.confidence {
            writeln!(
                f,
                "confidence, over all decisions together: at least {}",
                sure(confidence)
            )?;
        }
        for note in &self.notes {
            writeln!(f, "note: {}", plain(note))?;
        }
        Ok(())
    }
}

fn seen(trial: &Trial) -> String {
    if trial.smallest_seen_percent.is_finite() {
        format!("{:.2} %", trial.smallest_seen_percent)
    } else {
        "nothing".to_owned()
    }
}

fn ratio(step: &Step) -> String {
    match (&step.ratio, step.mark) {
        (_, Mark::GoodEnd) => "1".to_owned(),
        (Some(ratio), _) => format!("{:.4} [{:.4}, {:.4}]", ratio.value, ratio.low, ratio.high),
        (None, _) => "-".to_owned(),
    }
}

/// The cells of one row.
fn cells(step: &Step, culprit: Option<&str>) -> Vec<String> {
    let figures = &step.figures;
    let or_dash = |text: String| {
        if figures.count == 0 {
            "-".to_owned()
        } else {
            text
        }
    };
    let mut verdict = step.mark.name().to_owned();
    if culprit == Some(step.commit.id.as_str()) {
        verdict.push_str(" <- this one");
    }
    vec![
        step.commit.short.clone(),
        figures.count.to_string(),
        or_dash(format!("{:.3}", figures.mean)),
        or_dash(format!("{:.3}", figures.stdev)),
        or_dash(format!("{:.2}%", figures.cv_percent)),
        ratio(step),
        verdict,
        subject(&step.commit),
    ]
}

/// The answer, and the table of all steps.
impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.answer(f)?;
        self.tail(f)?;
        writeln!(f)?;
        let culprit = match &self.found.suspects[..] {
            [one] if self.found.verdict == Answer::Commit => Some(one.id.as_str()),
            _ => None,
        };
        let head = [
            "commit",
            "count",
            "mean",
            "stdev",
            "cv",
            "ratio to good",
            "verdict",
            "subject",
        ];
        let mut rows = vec![head.map(str::to_owned).to_vec()];
        rows.extend(self.steps.iter().map(|step| cells(step, culprit)));
        // Numbers are right-aligned, names left-aligned.
        for line in aligned(&rows, 1..5) {
            writeln!(f, "{line}")?;
        }
        for step in &self.steps {
            if let Some(why) = &step.why {
                writeln!(f, "{}: {why}", step.commit.short)?;
            }
        }
        Ok(())
    }
}

/// The change relative to the base, such as `-4.47 % [-5.01, -3.92]`.
impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&percent(self))
    }
}
