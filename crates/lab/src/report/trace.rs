//! The contents of a trace: bios from building to completion, queue depth over time, pauses, sizes. The
//! figures match those of the account shown with it.
//!
//! Invariants, whatever the trace contains: every `submit` or `complete` gives at most one bio, `requeue`
//! reverts a `submit`, and the queue depth never drops below 0.

use std::collections::{BTreeMap, VecDeque};

use serde::Serialize;

use crate::record::TraceEvent;

/// Maximum number of bios in the pipeline plot. Of a longer trace, the first ones are shown.
const MAX_BIOS: usize = 768;
/// Maximum number of steps in the queue depth plot.
const MAX_STEPS: usize = 2000;
/// Maximum number of pauses and commits in their plot. The longest ones are shown.
const MAX_PAUSES: usize = 1000;
/// Maximum number of distinct sizes. If there are more, they are grouped by powers of two.
const MAX_SIZES: usize = 16;

/// A bio: times of building, submission and completion (µs), length, and operation as an index into
/// [`Trace::operations`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Bio(
    pub(super) f32,
    pub(super) f32,
    pub(super) Option<f32>,
    pub(super) u64,
    pub(super) usize,
);

/// A trace, ready to be drawn and described.
#[derive(Debug, Default, Serialize)]
pub(super) struct Trace {
    /// Index of its entity in the page's list.
    pub(super) entity: usize,
    /// The first [`MAX_BIOS`] bios, by time of submission.
    pub(super) bios: Vec<Bio>,
    /// Names of operations.
    pub(super) operations: Vec<String>,
    /// Time (µs) and the number of bios in flight from then on, at most [`MAX_STEPS`].
    pub(super) depth: Vec<(f32, u32)>,
    /// Start and duration (µs) of pauses.
    pub(super) pauses: Vec<(f32, f32)>,
    /// Start and duration (µs) of journal commits.
    pub(super) commits: Vec<(f32, f32)>,
    /// Sizes with the count of bios of each; ascending.
    pub(super) sizes: Vec<(u64, u64)>,
    /// Whether `sizes` are the lower bounds of classes, which are powers of two.
    pub(super) sizes_are_classes: bool,
    /// Time from the first event to the last end, in µs.
    pub(super) span_us: f32,
    /// The total number of bios.
    pub(super) bios_in_all: usize,
    /// Maximum bios in flight.
    pub(super) most_in_flight: u32,
}

/// A bio being assembled from its events.
struct Whole {
    built: f64,
    submitted: f64,
    completed: Option<f64>,
    len: u64,
    operation: usize,
}

/// Assembles a trace. `entity` is the entity that it belongs to.
pub(super) fn of(entity: usize, events: &[TraceEvent]) -> Trace {
    let mut trace = Trace {
        entity,
        ..Trace::default()
    };
    let mut bios = bios(events, &mut trace.operations);
    bios.sort_by(|a, b| a.submitted.total_cmp(&b.submitted));
    for event in events.iter().filter(|e| e.at_us.is_finite()) {
        let begin = (event.at_us - event.took_us).max(0.0) as f32;
        match event.what.as_str() {
            "pause" => trace.pauses.push((begin, event.took_us as f32)),
            "commit" => trace.commits.push((begin, event.took_us as f32)),
            _ => {}
        }
    }
    longest(&mut trace.pauses);
    longest(&mut trace.commits);
    let ends = bios.iter().filter_map(|bio| bio.completed);
    let moments = events.iter().map(|e| e.at_us).filter(|at| at.is_finite());
    trace.span_us = ends.chain(moments).fold(0.0, f64::max) as f32;
    trace.bios_in_all = bios.len();
    (trace.sizes, trace.sizes_are_classes) = sizes(&bios);
    depth(&bios, &mut trace);
    trace.bios = bios.iter().take(MAX_BIOS).map(Whole::drawn).collect();
    trace
}

impl Whole {
    fn drawn(&self) -> Bio {
        let completed = self.completed.map(|at| at as f32);
        Bio(
            self.built as f32,
            self.submitted as f32,
            completed,
            self.len,
            self.operation,
        )
    }
}

/// Events of one bio have the same offset. If several bios have the same offset, the oldest one completes
/// first.
fn bios(events: &[TraceEvent], operations: &mut Vec<String>) -> Vec<Whole> {
    let mut built: BTreeMap<u64, VecDeque<f64>> = BTreeMap::new();
    let mut on_device: BTreeMap<(u64, u64), VecDeque<usize>> = BTreeMap::new();
    let mut bios: Vec<Option<Whole>> = Vec::new();
    for event in events.iter().filter(|e| e.at_us.is_finite()) {
        let key = (event.offset_bytes, event.len_bytes);
        match event.what.as_str() {
            "build" => built
                .entry(event.offset_bytes)
                .or_default()
                .push_back(event.at_us),
            "submit" => {
                let begun = built
                    .get_mut(&event.offset_bytes)
                    .and_then(VecDeque::pop_front);
                on_device.entry(key).or_default().push_back(bios.len());
                bios.push(Some(Whole {
                    built: begun.unwrap_or(event.at_us).min(event.at_us),
                    submitted: event.at_us,
                    completed: None,
                    len: event.len_bytes,
                    operation: number_of(operations, &event.detail),
                }));
            }
            "complete" => {
                let known = on_device.get_mut(&key).and_then(VecDeque::pop_front);
                if let Some(bio) = known.and_then(|known| bios[known].as_mut()) {
                    bio.completed = Some(event.at_us.max(bio.submitted));
                    continue;
                }
                let submitted = (event.at_us - event.took_us.max(0.0)).max(0.0);
                let begun = built
                    .get_mut(&event.offset_bytes)
                    .and_then(VecDeque::pop_front);
                bios.push(Some(Whole {
                    built: begun.unwrap_or(submitted).min(submitted),
                    submitted,
                    completed: Some(event.at_us),
                    len: event.len_bytes,
                    operation: number_of(operations, &event.detail),
                }));
            }
            // It keeps the time of its building, and will be submitted again.
            "requeue" => {
                let known = on_device.get_mut(&key).and_then(VecDeque::pop_front);
                if let Some(bio) = known.and_then(|known| bios[known].take()) {
                    let begun = built.entry(event.offset_bytes).or_default();
                    begun.push_front(bio.built);
                }
            }
            _ => {}
        }
    }
    bios.into_iter().flatten().collect()
}

fn number_of(names: &mut Vec<String>, name: &str) -> usize {
    names
        .iter()
        .position(|known| known == name)
        .unwrap_or_else(|| {
            names.push(name.to_owned());
            names.len() - 1
        })
}

/// Keeps the longest [`MAX_PAUSES`], in chronological order.
fn longest(spans: &mut Vec<(f32, f32)>) {
    spans.retain(|(_, took)| took.is_finite());
    spans.sort_by(|a, b| b.1.total_cmp(&a.1));
    spans.truncate(MAX_PAUSES);
    spans.sort_by(|a, b| a.0.total_cmp(&b.0));
}

fn sizes(bios: &[Whole]) -> (Vec<(u64, u64)>, bool) {
    let mut exact: BTreeMap<u64, u64> = BTreeMap::new();
    for bio in bios {
        *exact.entry(bio.len).or_default() += 1;
    }
    if exact.len() <= MAX_SIZES {
        return (exact.into_iter().collect(), false);
    }
    let mut classes: BTreeMap<u64, u64> = BTreeMap::new();
    for (size, count) in exact {
        let class = size.checked_ilog2().map_or(0, |power| 1 << power);
        *classes.entry(class).or_default() += count;
    }
    (classes.into_iter().collect(), true)
}

/// Computes the number of bios in flight over time. A bio that never completes is in flight until the end.
fn depth(bios: &[Whole], trace: &mut Trace) {
    let mut changes: Vec<(f64, i64)> = Vec::with_capacity(bios.len() * 2);
    for bio in bios {
        changes.push((bio.submitted, 1));
        changes.extend(bio.completed.map(|at| (at, -1)));
    }
    // At the same time, completions come first: they make room for submissions.
    changes.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    let mut now = 0i64;
    let mut steps: Vec<(f64, i64)> = Vec::new();
    for (at, by) in changes {
        now = (now + by).max(0);
        match steps.last_mut() {
            Some(last) if last.0 == at => last.1 = now,
            _ => steps.push((at, now)),
        }
    }
    let most = steps.iter().map(|(_, depth)| *depth).max().unwrap_or(0);
    trace.most_in_flight = u32::try_from(most).unwrap_or(u32::MAX);
    // Of each stretch of steps, keep the maximum and the last one, so that no peak and no idle time is lost.
    let stretch = steps.len().div_ceil(MAX_STEPS / 2).max(1);
    for steps in steps.chunks(stretch) {
        let highest = steps.iter().max_by_key(|(_, depth)| *depth);
        let last = steps.last().filter(|last| Some(*last) != highest);
        let kept = highest.into_iter().chain(last);
        trace.depth.extend(
            kept.map(|(at, depth)| (*at as f32, u32::try_from(*depth).unwrap_or(u32::MAX))),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(at_us: f64, what: &str, offset_bytes: u64, took_us: f64) -> TraceEvent {
        TraceEvent {
            at_us,
            what: what.into(),
            detail: "write".into(),
            offset_bytes,
            len_bytes: 4096,
            took_us,
        }
    }

    #[test]
    fn requeued_bios_are_not_on_the_device() {
        let trace = of(
            0,
            &[
                event(0.0, "build", 0, 0.0),
                event(5.0, "submit", 0, 0.0),
                event(6.0, "requeue", 0, 0.0),
                event(7.0, "requeue", 4096, 0.0),
                event(10.0, "submit", 0, 0.0),
                event(15.0, "complete", 0, 5.0),
            ],
        );
        let shown: Vec<_> = trace.bios.iter().map(|b| (b.0, b.1, b.2)).collect();
        assert_eq!(shown, [(0.0, 10.0, Some(15.0))]);
        assert_eq!(trace.depth, [(10.0, 1), (15.0, 0)]);
    }

    #[test]
    fn bios_are_put_together() {
        let trace = of(
            0,
            &[
                event(0.0, "build", 0, 0.0),
                event(5.0, "submit", 0, 0.0),
                event(6.0, "submit", 4096, 0.0),
                event(9.0, "complete", 4096, 3.0),
                event(15.0, "complete", 0, 10.0),
                event(30.0, "complete", 8192, 10.0),
                event(40.0, "pause", 0, 8.0),
            ],
        );
        let shown: Vec<_> = trace.bios.iter().map(|b| (b.0, b.1, b.2)).collect();
        assert_eq!(
            shown,
            [
                (0.0, 5.0, Some(15.0)),
                (6.0, 6.0, Some(9.0)),
                (20.0, 20.0, Some(30.0))
            ]
        );
        assert_eq!(trace.most_in_flight, 2);
        assert_eq!(trace.bios_in_all, 3);
        assert_eq!(trace.pauses, [(32.0, 8.0)]);
        assert_eq!(trace.sizes, [(4096, 3)]);
        assert_eq!(
            trace.depth,
            [
                (5.0, 1),
                (6.0, 2),
                (9.0, 1),
                (15.0, 0),
                (20.0, 1),
                (30.0, 0)
            ]
        );
        assert_eq!(trace.span_us, 40.0);
    }

    #[test]
    fn inconsistent_events_do_not_panic() {
        let trace = of(
            0,
            &[
                event(f64::NAN, "submit", 0, 0.0),
                event(3.0, "complete", 0, f64::INFINITY),
                event(-1.0, "complete", 1, 5.0),
                event(1.0, "pause", 1, f64::NAN),
                event(1.0, "something else", 1, 0.0),
            ],
        );
        assert_eq!(trace.bios_in_all, 2);
        assert!(of(0, &[]).depth.is_empty());
    }

    #[test]
    fn a_long_trace_is_drawn_in_part_and_counted_whole() {
        let events: Vec<_> = (0..20_000u32)
            .flat_map(|i| {
                let at = f64::from(i) * 2.0;
                let mut submit = event(at, "submit", u64::from(i) << 20, 0.0);
                submit.len_bytes = 512 * u64::from(1 + i % 100);
                let mut complete = event(at + 7.0, "complete", submit.offset_bytes, 7.0);
                complete.len_bytes = submit.len_bytes;
                [submit, complete]
            })
            .collect();
        let trace = of(0, &events);
        assert_eq!((trace.bios.len(), trace.bios_in_all), (MAX_BIOS, 20_000));
        assert!(trace.depth.len() <= MAX_STEPS && trace.most_in_flight == 4);
        assert!(trace.sizes_are_classes && trace.sizes.iter().map(|s| s.1).sum::<u64>() == 20_000);
    }
}
