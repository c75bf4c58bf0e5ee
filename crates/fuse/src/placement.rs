//! [`Placement`]: the processor and the policy of a thread that serves requests on its caller's processor.
//! Both decide whether the scheduler leaves the caller there.
//!
//! The thread is bound to that processor. With the usual policy, the scheduler would move the program to
//! another, idle processor when its request is answered, because our thread keeps this one busy. So our
//! thread has the policy of [`Background`] while no other thread competes for the processor.
//!
//! A stream of reads is an exception. The kernel reads ahead, so the program goes on while its request waits.
//! A bound thread would wait until the program sleeps, and the two would copy in turn, each stream taking up
//! to twice as long. So a thread whose last reply was long is not bound.
//!
//! Invariants:
//! - The scheduling delay of the thread is read once every [`CHECKED`] requests. If it grew by more than
//!   [`LATE`] since, the thread leaves the policy for a pause. Each pause is twice as long as the last one,
//!   up to [`PAUSE`]. So if other programs keep the processor busy, only a few requests per pause are late.
//! - A thread that may not leave the policy again never enters it.

use std::time::{Duration, Instant};

use throughline_device::{Background, bind_thread, spread_thread};

use crate::transport::Transport;

/// The number of requests between two checks of the scheduling delay.
const CHECKED: u32 = 8;
/// If the delay grows by more than this in [`CHECKED`] requests, the thread counts as late. A program that
/// computes for so long between its requests also delays our thread, but a move to another processor costs it
/// little in comparison.
const LATE: Duration = Duration::from_millis(10);
/// The shortest and the longest pause.
const PAUSE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(64));

/// A reply of at least this length is part of a stream, in bytes. The kernel reads less ahead for anything
/// else.
const STREAM_BYTES: usize = 256 << 10;

/// Belongs to one thread. See the head of this file.
pub(crate) struct Placement<'a> {
    processor: u16,
    /// The last reply was part of a stream.
    streams: bool,
    /// `None`: the thread keeps the usual policy.
    background: Option<Background>,
    transport: &'a Transport,
    is_in_background: bool,
    judge: Judge,
    /// The requests since the last check.
    requests: u32,
}

impl<'a> Placement<'a> {
    /// For the current thread, which is bound to `processor`, with its own `background`.
    pub(crate) fn new(
        processor: u16,
        background: Option<Background>,
        transport: &'a Transport,
    ) -> Placement<'a> {
        let mut placement = Placement {
            processor,
            streams: false,
            background,
            transport,
            is_in_background: false,
            judge: Judge::new(Instant::now()),
            requests: 0,
        };
        placement.look();
        placement
    }

    /// A request was served, with a reply of this length.
    pub(crate) fn served(&mut self, reply_bytes: usize) {
        let streams = reply_bytes >= STREAM_BYTES;
        if std::mem::replace(&mut self.streams, streams) != streams {
            match streams {
                true => spread_thread(),
                false => bind_thread(self.processor),
            }
        }
        self.requests += 1;
        if self.requests >= CHECKED {
            self.requests = 0;
            self.look();
        }
    }

    fn look(&mut self) {
        let Some(background) = self.background.take() else {
            return;
        };
        let step = background.delay().and_then(|delay| {
            let step = self.judge.look(Instant::now(), delay);
            match step {
                Some(Step::Enter) => background.enter()?,
                Some(Step::Leave) => background.leave()?,
                None => {}
            }
            Ok(step)
        });
        match step {
            Ok(step) => {
                step.iter().for_each(|step| self.set(*step == Step::Enter));
                self.background = Some(background);
            }
            Err(error) => {
                tracing::warn!(%error, "changing the policy of a thread");
                let _ = background.leave();
                self.set(false);
            }
        }
    }

    fn set(&mut self, is_in_background: bool) {
        if std::mem::replace(&mut self.is_in_background, is_in_background) != is_in_background {
            self.transport.set_idle_policy(is_in_background);
        }
    }
}

impl Drop for Placement<'_> {
    fn drop(&mut self) {
        self.set(false);
    }
}

/// What a thread must do now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Enter,
    Leave,
}

/// Decides from the scheduling delays of a thread.
pub(crate) struct Judge {
    state: State,
    pause: Duration,
}

enum State {
    /// In the policy: when it was entered, and the delay at the last check.
    Background { since: Instant, delay: Duration },
    /// In the usual policy until this time.
    Usual { until: Instant },
}

impl Judge {
    pub(crate) fn new(now: Instant) -> Judge {
        Judge {
            state: State::Usual { until: now },
            pause: PAUSE.0,
        }
    }

    /// How long the pause still lasts.
    pub(crate) fn pause_left(&self, now: Instant) -> Duration {
        match self.state {
            State::Usual { until } => until.saturating_duration_since(now),
            State::Background { .. } => Duration::ZERO,
        }
    }

    /// `delay`: the total time that the thread has waited for its processor.
    pub(crate) fn look(&mut self, now: Instant, delay: Duration) -> Option<Step> {
        match self.state {
            State::Usual { until } if now < until => None,
            State::Usual { .. } => {
                self.state = State::Background { since: now, delay };
                Some(Step::Enter)
            }
            State::Background { since, delay: last } => {
                if delay.saturating_sub(last) <= LATE {
                    self.state = State::Background { since, delay };
                    return None;
                }
                if now.duration_since(since) > 4 * self.pause {
                    self.pause = PAUSE.0;
                }
                let until = now + self.pause;
                self.state = State::Usual { until };
                self.pause = (2 * self.pause).min(PAUSE.1);
                Some(Step::Leave)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LATER: Duration = Duration::from_millis(11);

    #[test]
    fn a_thread_that_is_late_leaves_the_policy_for_pauses_that_double() {
        let begin = Instant::now();
        let mut judge = Judge::new(begin);
        let (mut now, mut delay) = (begin, Duration::ZERO);
        let mut pauses = Vec::new();
        assert_eq!(judge.look(now, delay), Some(Step::Enter));
        for _ in 0..9 {
            delay += LATER;
            assert_eq!(judge.look(now, delay), Some(Step::Leave));
            let left = now;
            while judge.look(now, delay).is_none() {
                now += Duration::from_millis(500);
                // Delays in the usual policy do not count.
                delay += LATER;
            }
            pauses.push(now.duration_since(left).as_secs());
        }
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 64, 64, 64]);
        // After a long time in the policy, pauses are short again.
        now += 5 * PAUSE.1;
        delay += LATER;
        assert_eq!(judge.look(now, delay), Some(Step::Leave));
        assert_eq!(judge.look(now + PAUSE.0, delay), Some(Step::Enter));
    }

    #[test]
    fn a_thread_that_is_a_little_late_stays_in_the_policy() {
        let begin = Instant::now();
        let mut judge = Judge::new(begin);
        assert_eq!(judge.look(begin, LATER), Some(Step::Enter));
        for looks in 1..1000 {
            assert_eq!(judge.look(begin, LATER + looks * LATE), None);
        }
    }
}
