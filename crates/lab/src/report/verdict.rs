//! The headline: the result in one sentence, and whether it is good.

use crate::record::{Bar, Better, Line, Record};
use crate::stats::{Question, Verdict, judge, judge_at_looks, trimmed};

use super::accounts::Accounts;
use super::compare::Compared;
use super::samples::{Quantity, Row};
use super::text::{one_line, plural, share, short, with_unit};
use super::{Entity, Source};

/// The colour of the sentence on the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tone {
    Good,
    Bad,
    /// A result that is neither good nor bad.
    Plain,
    /// No answer.
    Open,
}

/// The sentence and its supporting statements.
#[derive(Debug)]
pub(super) struct Headline {
    pub(super) sentence: String,
    pub(super) tone: Tone,
    /// Further sentences, the most important first.
    pub(super) more: Vec<String>,
}

impl Headline {
    fn new(tone: Tone, sentence: impl Into<String>) -> Headline {
        Headline {
            sentence: sentence.into(),
            tone,
            more: Vec::new(),
        }
    }
}

/// The headline of these files.
pub(super) fn headline(
    sources: &[Source],
    comparisons: &[Compared],
    quantities: &[Quantity],
    accounts: &Accounts,
    entities: &[Entity],
) -> Headline {
    if sources.len() > 1 && !quantities.is_empty() {
        return compared(comparisons);
    }
    let record = &sources[0].record;
    let limits: Vec<&Bar> = bars(record).collect();
    let quantity = quantities
        .iter()
        .find(|q| q.rows.iter().any(|row| row.summary.count > 0));
    let mut headline = match (quantity, accounts.entities.first()) {
        _ if !limits.is_empty() => of_limits(&limits),
        (Some(quantity), _) => of_quantity(quantity, record, entities),
        (None, Some(_)) => of_accounts(accounts, entities),
        (None, None) => Headline::new(
            Tone::Open,
            "These files contain no samples: there is nothing to show.",
        ),
    };
    if let (false, Some(quantity)) = (limits.is_empty(), quantity) {
        let second = of_quantity(quantity, record, entities);
        headline.more.push(second.sentence);
        headline.more.extend(second.more);
    }
    headline
}

/// The limits that a run has.
pub(super) fn bars(record: &Record) -> impl Iterator<Item = &Bar> {
    record.lines.iter().filter_map(|line| match line {
        Line::Bar(bar) => Some(bar),
        _ => None,
    })
}

fn of_limits(bars: &[&Bar]) -> Headline {
    let missed: Vec<&&Bar> = bars.iter().filter(|bar| !bar.met).collect();
    let Some(first) = missed.first() else {
        let all = match bars.len() {
            1 => "The one limit is met.".to_owned(),
            count => format!("All {count} limits are met."),
        };
        return Headline::new(Tone::Good, all);
    };
    let sentence = format!(
        "{} of {} not met: '{}' is {}, and should be {} {}.",
        missed.len(),
        plural(bars.len(), "limit"),
        one_line(&first.name),
        short(first.value),
        if first.at_least {
            "at least"
        } else {
            "at most"
        },
        short(first.target),
    );
    Headline::new(Tone::Bad, sentence)
}

/// The best series and its lead over the next.
fn of_quantity(quantity: &Quantity, record: &Record, entities: &[Entity]) -> Headline {
    let mut rows: Vec<&Row> = quantity
        .rows
        .iter()
        .filter(|row| row.summary.count > 0)
        .collect();
    rows.sort_by(|a, b| match quantity.better {
        Better::Higher => b.summary.mean.total_cmp(&a.summary.mean),
        Better::Lower => a.summary.mean.total_cmp(&b.summary.mean),
    });
    let what = one_line(&quantity.name);
    let phrase = |row: &Row| with_unit(row.summary.mean, &one_line(&quantity.unit));
    let name = |row: &Row| entities[row.entity].label.clone();
    let Some(best) = rows.first() else {
        return Headline::new(Tone::Open, format!("There are no samples of {what}."));
    };
    let spread = format!(
        "{}, cv {}",
        plural(best.summary.count, "sample"),
        share(best.summary.cv_percent)
    );
    let Some(next) = rows.get(1) else {
        let sentence = format!("{}: {what} is {} on average.", name(best), phrase(best));
        let mut headline = Headline::new(Tone::Plain, sentence);
        headline.more.push(format!("{spread}."));
        return headline;
    };
    let (over, under) = paired(quantity, record, best, next, entities);
    let question = Question::new(quantity.better);
    let found = match record.most_rounds() {
        Some(most) => judge_at_looks(&under, &over, &question, most as usize),
        None => judge(&under, &over, &question),
    };
    let known = found.ratio.is_finite();
    let interval = found.has_interval().then(|| {
        let sure = trimmed(100.0 * found.confidence, 4);
        format!(
            " ({sure} % sure: {} to {} times)",
            short(found.low),
            short(found.high)
        )
    });
    let times = format!(
        "its {what} is {} x that of {}",
        short(found.ratio),
        name(next)
    );
    let mut headline = match found.verdict {
        Verdict::NoDifference => Headline::new(
            Tone::Open,
            format!(
                "No difference in {what} is seen between {} and {}.",
                name(best),
                name(next)
            ),
        ),
        _ if !known => Headline::new(Tone::Plain, format!("{} is best in {what}.", name(best))),
        Verdict::Faster => Headline::new(Tone::Plain, format!("{} is best: {times}.", name(best))),
        Verdict::NotEnough | Verdict::Slower => Headline::new(
            Tone::Open,
            format!(
                "{} looks best, without enough evidence: {times}.",
                name(best)
            ),
        ),
    };
    headline.more.push(format!(
        "{} against {}{}; {spread}.",
        phrase(best),
        phrase(next),
        interval.unwrap_or_default()
    ));
    headline
}

/// The samples of two series of one run, from the rounds that both have. Rounds with a non-finite sample are
/// left out.
fn paired(
    quantity: &Quantity,
    record: &Record,
    over: &Row,
    under: &Row,
    entities: &[Entity],
) -> (Vec<f64>, Vec<f64>) {
    let columns = record.columns();
    let column = |row: &Row| {
        columns.iter().find(|column| {
            column.quantity == quantity.name
                && one_line(&column.series) == entities[row.entity].label
        })
    };
    let (Some(over), Some(under)) = (column(over), column(under)) else {
        return (Vec::new(), Vec::new());
    };
    let (over, under) = over.paired(under);
    let both = over.into_iter().zip(under);
    both.filter(|(a, b)| a.is_finite() && b.is_finite()).unzip()
}

fn of_accounts(accounts: &Accounts, entities: &[Entity]) -> Headline {
    let all = accounts.entities.iter().zip(&accounts.in_short);
    let mut sentences =
        all.map(|(entity, phrase)| format!("{}: {phrase}", entities[*entity].label));
    let mut headline = Headline::new(Tone::Plain, sentences.next().unwrap_or_default());
    headline.more.extend(sentences);
    headline
}

fn compared(comparisons: &[Compared]) -> Headline {
    let count = |verdict| {
        comparisons
            .iter()
            .filter(|c| c.judgement.verdict == verdict)
            .count()
    };
    let (faster, slower) = (count(Verdict::Faster), count(Verdict::Slower));
    let (same, open) = (count(Verdict::NoDifference), count(Verdict::NotEnough));
    let Some(first) = comparisons.first() else {
        return Headline::new(
            Tone::Open,
            "Nothing can be compared: no quantity is in the first file and in another.",
        );
    };
    let tone = match (slower, faster, same, open) {
        (1.., ..) => Tone::Bad,
        (0, 1.., ..) => Tone::Good,
        (0, 0, _, 0) => Tone::Plain,
        _ => Tone::Open,
    };
    if comparisons.len() == 1 {
        let mut headline = Headline::new(tone, sentence(first));
        headline.more.push(format!("{}.", first.judgement));
        return headline;
    }
    let kinds = [
        (slower, "slower or worse"),
        (faster, "faster or better"),
        (same, "without a difference"),
        (open, "without enough evidence"),
    ];
    let phrase: Vec<String> = kinds
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, kind)| format!("{count} {kind}"))
        .collect();
    let mut headline = Headline::new(
        tone,
        format!(
            "Of {} comparisons: {}.",
            comparisons.len(),
            phrase.join(", ")
        ),
    );
    let mut decided: Vec<&Compared> = comparisons
        .iter()
        .filter(|c| matches!(c.judgement.verdict, Verdict::Faster | Verdict::Slower))
        .collect();
    let weight = |c: &Compared| c.judgement.ratio.ln().abs();
    decided.sort_by(|a, b| {
        let slower_first = |c: &Compared| c.judgement.verdict != Verdict::Slower;
        slower_first(a)
            .cmp(&slower_first(b))
            .then(weight(b).total_cmp(&weight(a)))
    });
    headline
        .more
        .extend(decided.iter().take(2).map(|c| sentence(c)));
    headline
}

/// The result of one comparison, with the name of the file and the size of the change.
pub(super) fn sentence(c: &Compared) -> String {
    let found = &c.judgement;
    let what = match c.series.is_empty() {
        true => c.quantity.clone(),
        false => format!("{} of {}", c.quantity, c.series),
    };
    match found.verdict {
        Verdict::Faster | Verdict::Slower => format!(
            "'{}' is {} {} than '{}': {what} is {}.",
            c.new,
            share(found.change_percent.abs()),
            c.word(),
            c.base,
            c.means()
        ),
        Verdict::NoDifference => format!(
            "'{}' and '{}' do not differ in {what} by more than {} %.",
            c.new,
            c.base,
            short(found.threshold_percent)
        ),
        Verdict::NotEnough => format!(
            "Not enough evidence whether '{}' differs from '{}' in {what}.",
            c.new, c.base
        ),
    }
}
