//! The promises of the statistics, checked on synthetic samples: the rate of false alarms, and what is
//! detected.

use std::os::unix::fs::FileExt;
use std::time::Instant;

use super::*;
use crate::record::Better;

/// Noise from a fixed seed.
pub(super) struct Noise(fastrand::Rng);

impl Noise {
    pub(super) fn new(seed: u64) -> Noise {
        Noise(fastrand::Rng::with_seed(seed))
    }

    /// A normally distributed number.
    pub(super) fn normal(&mut self, mean: f64, deviation: f64) -> f64 {
        mean + deviation * normal(&mut self.0)
    }
}

/// A sample of a machine with a certain kind of noise. `round` is the round of the run.
type Pattern = fn(&mut Noise, usize) -> f64;

const PATTERNS: [(&str, Pattern); 7] = [
    ("cv 1.2 %", |noise, _| noise.normal(100.0, 1.2)),
    ("cv 5 %", |noise, _| noise.normal(100.0, 5.0)),
    ("lognormal", |noise, _| 100.0 * noise.normal(0.0, 0.3).exp()),
    ("every tenth is an outlier", |noise, _| {
        let stalls = noise.0.u32(..10) == 0;
        noise.normal(if stalls { 60.0 } else { 100.0 }, 1.2)
    }),
    ("whole numbers", |noise, _| noise.normal(100.0, 0.6).round()),
    (
        "two levels",
        |noise, _| if noise.0.bool() { 100.0 } else { 103.0 },
    ),
    ("Cauchy", |noise, _| {
        100.0 * (noise.normal(0.0, 0.01) / noise.normal(0.0, 1.0)).exp()
    }),
];

fn run(noise: &mut Noise, pattern: Pattern, rounds: usize) -> Vec<f64> {
    (0..rounds).map(|round| pattern(noise, round)).collect()
}

fn alarm(verdict: Verdict) -> bool {
    matches!(verdict, Verdict::Faster | Verdict::Slower)
}

fn sequential(mut pair: impl FnMut() -> (f64, f64), question: Question, max: usize) -> Sequential {
    let mut sequential = Sequential::new(question, max);
    while sequential.wants_more() {
        let (base, new) = pair();
        sequential.push(base, new);
    }
    sequential
}

/// Enumerates all ways of swapping the partners of twelve pairs, which are equally likely if nothing differs.
/// The share of alarms stays within the bound. This checks the bound itself, not an estimate of it.
#[test]
fn the_bound_on_false_alarms_holds_over_every_swap_of_partners() {
    if throughline_testkit::tier::is_too_long("trials of the statistics") {
        return;
    }
    let pairs = throughline_testkit::tier::pick(10, 10, 12);
    let mut noise = Noise::new(1);
    for (name, pattern) in PATTERNS {
        for confidence in [0.99, Question::DEFAULT_CONFIDENCE, 0.9] {
            let question = Question {
                confidence,
                ..Question::default()
            };
            let base = run(&mut noise, pattern, pairs);
            let new = run(&mut noise, pattern, pairs);
            let (mut alarms, mut looked) = (0, 0);
            for swaps in 0..1u32 << pairs {
                let swapped = |i: usize| swaps >> i & 1 == 1;
                let pick = |i: usize| {
                    if swapped(i) {
                        (new[i], base[i])
                    } else {
                        (base[i], new[i])
                    }
                };
                let (a, b): (Vec<f64>, Vec<f64>) = (0..pairs).map(pick).unzip();
                alarms += u32::from(alarm(judge(&a, &b, &question).verdict));
                let mut rounds = (0..pairs).map(pick);
                let looks = sequential(|| rounds.next().expect("a pair"), question, pairs);
                looked += u32::from(looks.decided().is_some_and(alarm));
            }
            let allowed = f64::from(1u32 << pairs) * (1.0 - confidence) + 1e-6;
            assert!(
                f64::from(alarms) <= allowed,
                "{name} {confidence}: {alarms}"
            );
            assert!(
                f64::from(looked) <= allowed,
                "{name} {confidence}: {looked} with looks"
            );
        }
    }
}

/// Equal runs, with every kind of noise: at most one alarm in a hundred at the default confidence.
#[test]
fn equal_runs_raise_at_most_one_alarm_in_a_hundred() {
    if throughline_testkit::tier::is_too_long("trials of the statistics") {
        return;
    }
    let runs = throughline_testkit::tier::pick(300, 300, 1000);
    let mut noise = Noise::new(3);
    for (name, pattern) in PATTERNS {
        let question = Question::default();
        let (mut once, mut looked) = (0, 0);
        for _ in 0..runs {
            let (a, b) = (run(&mut noise, pattern, 40), run(&mut noise, pattern, 40));
            once += usize::from(alarm(judge(&a, &b, &question).verdict));
            let pair = || (pattern(&mut noise, 0), pattern(&mut noise, 0));
            looked += usize::from(sequential(pair, question, 40).decided().is_some_and(alarm));
        }
        println!("{name}: alarms in {runs} equal runs: {once}, with looks {looked}");
        assert!(once * 100 <= runs, "{name}: {once}");
        assert!(looked * 100 <= runs, "{name}: {looked} with looks");
    }
}

/// The project's promise, for the noise of report 5.
#[test]
fn planted_slowdowns_are_found() {
    const RUNS: usize = 500;
    let mut noise = Noise::new(4);
    for (planted, at_least) in [(1.0, 0.0), (2.0, 0.9), (4.5, 0.99), (10.0, 0.99)] {
        let (mut found, mut wrong, mut pairs) = (0, 0, 0);
        for _ in 0..RUNS {
            let pair = || {
                (
                    noise.normal(100.0, 1.2),
                    (1.0 - planted / 100.0) * noise.normal(100.0, 1.2),
                )
            };
            let looks = sequential(pair, Question::default(), 40);
            pairs += looks.pairs();
            match looks.decided() {
                Some(Verdict::Slower) => found += 1,
                Some(Verdict::Faster) => wrong += 1,
                // "No difference larger than 1 %" is true if 1 % is planted, but should rarely be the
                // verdict.
                Some(Verdict::NoDifference) if planted > 1.0 => wrong += 1,
                Some(Verdict::NoDifference) => {
                    assert!(looks.judgement().smallest_seen_percent <= 1.0)
                }
                _ => assert_eq!(looks.judgement().verdict, Verdict::NotEnough),
            }
        }
        let mean = pairs as f64 / RUNS as f64;
        println!("-{planted} %: found in {found} of {RUNS} runs, {mean:.1} pairs on average");
        assert!(
            found as f64 >= at_least * RUNS as f64,
            "{planted} %: {found}"
        );
        assert!(wrong * 100 <= RUNS, "{planted} %: {wrong} wrong");
    }
}

/// A run of ten or twenty pairs could not detect 1 %, so it must not call 1 % no difference.
#[test]
fn a_percent_is_not_called_none_by_a_run_that_could_not_see_it() {
    let mut noise = Noise::new(5);
    for pairs in [5, 10, 20, 40, 200] {
        let mut none = 0;
        for _ in 0..300 {
            let base: Vec<f64> = (0..pairs).map(|_| noise.normal(100.0, 1.2)).collect();
            let new: Vec<f64> = (0..pairs).map(|_| noise.normal(99.0, 1.2)).collect();
            let found = judge(&base, &new, &Question::default());
            if found.verdict == Verdict::NoDifference {
                none += 1;
                assert!(found.smallest_seen_percent <= 1.0, "{found}");
            }
        }
        assert!(none <= 3, "{pairs} pairs: {none} of 300");
    }
}

/// A long run of equal variants finds that nothing differs.
#[test]
fn a_long_equal_run_shows_that_nothing_differs() {
    let mut noise = Noise::new(6);
    let mut none = 0;
    for _ in 0..100 {
        let pair = || (noise.normal(100.0, 1.2), noise.normal(100.0, 1.2));
        let looks = sequential(pair, Question::default(), 200);
        none += usize::from(looks.decided() == Some(Verdict::NoDifference));
    }
    assert!(none >= 98, "{none}");
}

/// The smallest detectable difference is accurate: a difference of that size is found in about four of five
/// runs.
#[test]
fn the_smallest_difference_that_is_seen_is_seen() {
    let mut noise = Noise::new(7);
    let equal: Vec<f64> = (0..100)
        .map(|_| {
            let base: Vec<f64> = (0..30).map(|_| noise.normal(100.0, 1.2)).collect();
            let new: Vec<f64> = (0..30).map(|_| noise.normal(100.0, 1.2)).collect();
            judge(&base, &new, &Question::default()).smallest_seen_percent
        })
        .collect();
    let typical = mean(&equal) / 100.0;
    let found = (0..500)
        .filter(|_| {
            let base: Vec<f64> = (0..30).map(|_| noise.normal(100.0, 1.2)).collect();
            let new: Vec<f64> = (0..30)
                .map(|_| (1.0 + typical) * noise.normal(100.0, 1.2))
                .collect();
            judge(&base, &new, &Question::default()).verdict == Verdict::Faster
        })
        .count();
    assert!((350..=450).contains(&found), "{found} of 500 at {typical}");
}

#[test]
fn few_pairs_are_never_certain() {
    for pairs in 0..Question::default().fewest_pairs() {
        let (base, new) = (vec![100.0; pairs], vec![50.0; pairs]);
        let found = judge(&base, &new, &Question::default());
        assert_eq!(found.verdict, Verdict::NotEnough, "{pairs}");
        assert!(found.smallest_seen_percent.is_infinite());
        assert!(found.to_string().contains("too few"), "{found}");
    }
    let enough = Question::default().fewest_pairs();
    let found = judge(
        &vec![100.0; enough],
        &vec![50.0; enough],
        &Question::default(),
    );
    assert_eq!(found.verdict, Verdict::Slower);
    // Three pairs that differ: the interval must be wide.
    let found = judge(
        &[100.0, 101.0, 99.0],
        &[90.0, 93.0, 88.0],
        &Question::default(),
    );
    assert!(found.low < 0.85 && found.high > 0.95, "{found:?}");
}

/// A run's own data decides when it stops. Judging it later must not give more confidence than the run
/// allows, however many samples it has. If the number of rounds were assumed to be fixed, equal runs would be
/// called different far more often.
#[test]
fn a_run_that_ended_by_what_it_saw_keeps_the_interval_of_its_looks() {
    if throughline_testkit::tier::is_too_long("trials of the statistics") {
        return;
    }
    let runs = throughline_testkit::tier::pick(100, 100, 400);
    const MOST: usize = 60;
    let mut noise = Noise::new(9);
    let question = Question::default();
    let (mut at_looks, mut as_if_fixed) = (0, 0);
    for run in 0..runs {
        let mut base = Vec::new();
        let mut new = Vec::new();
        let mut fixed = false;
        let mut looks = Sequential::new(question, MOST);
        // Every second run ends in the worst way: as soon as a judge that assumes a fixed number of rounds
        // would be certain.
        while looks.wants_more() && !(run % 2 == 0 && fixed) {
            base.push(noise.normal(100.0, 1.2));
            new.push(noise.normal(100.0, 1.2));
            looks.push(base[base.len() - 1], new[new.len() - 1]);
            fixed |= alarm(judge(&base, &new, &question).verdict);
        }
        let read = judge_at_looks(&base, &new, &question, MOST);
        at_looks += usize::from(alarm(read.verdict));
        as_if_fixed += usize::from(fixed);
        if let Some(verdict) = looks.decided() {
            let own = looks.judgement();
            assert_eq!(
                (read.verdict, read.low, read.high),
                (verdict, own.low, own.high)
            );
        }
    }
    println!(
        "alarms in {runs} equal runs: {at_looks} at looks, {as_if_fixed} as if the number had been fixed"
    );
    assert!(at_looks * 100 <= runs, "{at_looks}");
    assert!(
        as_if_fixed * 100 > 2 * runs,
        "{as_if_fixed}: not hard enough"
    );
    let few = judge_at_looks(&[1.0; 5], &[2.0; 5], &question, MOST);
    assert_eq!(few.verdict, Verdict::NotEnough);
    assert!(few.to_string().contains("too few"), "{few}");
    assert_eq!(judge_at_looks(&[], &[], &question, 0).pairs, 0);
}

#[test]
fn it_may_end_beside_a_loss_that_is_allowed() {
    if throughline_testkit::tier::is_too_long("trials of the statistics") {
        return;
    }
    let mut noise = Noise::new(10);
    let question = Question::new(Better::Lower);
    let until = Until::Beside { loss_percent: 3.0 };
    for (more, worse) in [(0.0, false), (6.0, true)] {
        let (mut right, mut wrong, mut pairs) = (0, 0, 0);
        for _ in 0..200 {
            let mut looks = Sequential::until(question, 400, until);
            while looks.wants_more() {
                let level = 100.0 + more;
                looks.push(noise.normal(100.0, 5.0), noise.normal(level, 5.0));
            }
            let (_, low, high) = looks.judgement().worse_percent();
            right += usize::from(if worse { low > 3.0 } else { high <= 3.0 });
            wrong += usize::from(if worse { high <= 3.0 } else { low > 3.0 });
            pairs += looks.pairs();
        }
        println!(
            "{more} % more: {right} of 200 right after {} pairs",
            pairs / 200
        );
        assert!(right >= 198 && wrong == 0, "{more}: {right} {wrong}");
        assert!(pairs / 200 < 300, "{pairs}");
    }
}

#[test]
fn a_drift_that_both_share_cancels_out() {
    let mut noise = Noise::new(8);
    let drift = |round: i32| 100.0 + 5.0 * f64::from(round);
    let base: Vec<f64> = (0..40).map(|i| noise.normal(drift(i), 1.2)).collect();
    let new: Vec<f64> = (0..40)
        .map(|i| 0.955 * noise.normal(drift(i), 1.2))
        .collect();
    assert_eq!(
        judge(&base, &new, &Question::default()).verdict,
        Verdict::Slower
    );
}

#[test]
fn strange_values_are_no_trouble() {
    let question = Question::default();
    let same = vec![1024.0; 20];
    let found = judge(&same, &same, &question);
    assert_eq!((found.verdict, found.ratio), (Verdict::NoDifference, 1.0));
    assert_eq!(found.smallest_seen_percent, 0.0);
    // Counts: 1024 bios against 8.
    let found = judge(&same, &[8.0; 20], &Question::new(Better::Lower));
    assert_eq!(found.verdict, Verdict::Faster);
    let zero = vec![0.0; 20];
    assert_eq!(
        judge(&zero, &zero, &question).verdict,
        Verdict::NoDifference
    );
    let from_zero = judge(&zero, &same, &question);
    assert_eq!(from_zero.verdict, Verdict::Faster);
    assert!(
        from_zero.to_string().contains("the base is 0"),
        "{from_zero}"
    );
    assert_eq!(judge(&same, &zero, &question).change_percent, -100.0);
    let negative: Vec<f64> = (0..20).map(|i| -100.0 - f64::from(i % 3)).collect();
    let less: Vec<f64> = negative.iter().map(|v| v - 50.0).collect();
    assert_eq!(judge(&negative, &less, &question).verdict, Verdict::Slower);
    let mut holes = same.clone();
    holes[3] = f64::NAN;
    holes[5] = f64::INFINITY;
    let found = judge(&holes, &same, &question);
    assert_eq!((found.pairs, found.left_out), (18, 2));
    assert!(
        found.to_string().contains("2 samples are not numbers"),
        "{found}"
    );
    let found = judge(&same, &same[..9], &question);
    assert_eq!((found.pairs, found.left_out), (9, 11));
    for extreme in [f64::MIN_POSITIVE, f64::MAX, -f64::MAX] {
        let found = judge(&[extreme; 20], &same, &question);
        assert!(!found.to_string().is_empty());
        judge(&same, &[extreme; 20], &question);
    }
    assert!(judge(&[], &[], &question).ratio.is_nan());
    assert!(
        judge(&[1.0], &[], &question)
            .to_string()
            .contains("too few")
    );
    for confidence in [f64::NAN, 0.0, 1.0, 7.0] {
        let odd = Question {
            confidence,
            ..question
        };
        assert_eq!(
            judge(&same, &same, &odd).confidence,
            Question::DEFAULT_CONFIDENCE
        );
    }
}

#[test]
fn a_judgement_reads_as_a_sentence_and_as_json() {
    let base: Vec<f64> = (0..40).map(|i| 135.0 + f64::from(i % 7) / 2.0).collect();
    let new: Vec<f64> = base.iter().rev().map(|v| v * 0.955).collect();
    let found = judge(&base, &new, &Question::default());
    let text = found.to_string();
    assert!(text.starts_with("Slower: -4."), "{text}");
    assert!(
        text.contains("99.5 % sure") && text.contains("40 pairs could have detected"),
        "{text}"
    );
    let json = serde_json::to_value(&found).expect("JSON");
    assert_eq!(json["verdict"], "slower");
    assert_eq!(json["pairs"], 40);
    let few = serde_json::to_value(judge(&[1.0], &[2.0], &Question::default())).expect("JSON");
    assert_eq!(few["verdict"], "not-enough");
    assert!(few["smallest_seen_percent"].is_null());
}

/// Checks the judge on real I/O, once: reads of a file that is in the kernel's page cache. Run with
/// `THROUGHLINE_SOAK=1 cargo test -p throughline-lab --lib on_real_io -- --nocapture`.
#[test]
fn on_real_io_equal_ways_raise_no_alarm_and_a_planted_loss_is_found() {
    const RUNS: usize = 100;
    if std::env::var_os("THROUGHLINE_SOAK").is_none() {
        throughline_testkit::left_out!("THROUGHLINE_SOAK is not set");
        return;
    }
    let file = tempfile::tempfile().expect("a file");
    let mut buffer = vec![7; 64 << 10];
    for block in 0..BLOCKS {
        file.write_all_at(&buffer, block * buffer.len() as u64)
            .expect("written");
    }
    let mut way = |percent_more: f64| -> f64 {
        let began = Instant::now();
        for block in 0..(BLOCKS as f64 * (1.0 + percent_more / 100.0)).round() as u64 {
            file.read_exact_at(&mut buffer, block % BLOCKS * (64 << 10))
                .expect("read");
        }
        BLOCKS as f64 / began.elapsed().as_secs_f64()
    };
    for (planted, least, most) in [
        (0.0, 0, 1),
        (1.0, 0, RUNS),
        (2.0, 0, RUNS),
        (4.5, 99, RUNS),
        (10.0, 99, RUNS),
    ] {
        let (mut found, mut pairs, mut seen) = (0, 0, 0.0);
        for run in 0..RUNS {
            let mut turn = run % 2 == 0;
            let looks = sequential(
                || {
                    turn = !turn;
                    if turn {
                        let base = way(0.0);
                        (base, way(planted))
                    } else {
                        let new = way(planted);
                        (way(0.0), new)
                    }
                },
                Question::default(),
                40,
            );
            found += usize::from(looks.decided().is_some_and(alarm));
            pairs += looks.pairs();
            seen += looks.judgement().smallest_seen_percent / RUNS as f64;
        }
        println!(
            "planted {planted} %: {found} of {RUNS} runs say so, after {} pairs on average; \
             could see {seen:.2} %",
            pairs / RUNS
        );
        // A loss may be hidden by this machine's noise.
        if planted == 0.0 || seen <= planted / 2.0 {
            assert!((least..=most).contains(&found), "{planted} %: {found}");
        }
    }
}

/// Number of blocks of 64 KiB that one sample reads.
const BLOCKS: u64 = 256;
