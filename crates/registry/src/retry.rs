//! Tries again what may go better the next time, a bounded number of times.

use std::time::{Duration, Instant};

use crate::error::{Error, Kind, Result};
use crate::http::{Answer, Failed};

/// Tries in a row without any success.
pub(crate) const TRIES: u32 = 5;
/// The first wait; each is twice as long as the one before.
const WAIT: Duration = Duration::from_millis(250);
/// The longest that a server may ask for.
const WAIT_MAX: Duration = Duration::from_secs(60);
/// How often it is looked whether the caller wants to stop.
const LOOK: Duration = Duration::from_millis(100);

/// What is left of the tries.
pub(crate) struct Tries<'a> {
    left: u32,
    wait: Duration,
    goes_on: &'a (dyn Fn() -> bool + Sync),
}

impl<'a> Tries<'a> {
    /// `goes_on`: whether the caller still wants the result.
    pub(crate) fn new(goes_on: &'a (dyn Fn() -> bool + Sync)) -> Tries<'a> {
        Tries {
            left: TRIES,
            wait: WAIT,
            goes_on,
        }
    }

    /// There was a success.
    pub(crate) fn renew(&mut self) {
        (self.left, self.wait) = (TRIES, WAIT);
    }

    /// Waits before the next try; the error if there is none.
    pub(crate) fn again(&mut self, why: &Error, asked: Option<Duration>) -> Result<()> {
        self.left -= 1;
        if self.left == 0 {
            let text = format!("{why} (tried {TRIES} times)");
            return Err(Error::new(why.kind(), text));
        }
        if let Some(asked) = asked.filter(|asked| *asked > WAIT_MAX) {
            let text = format!("{why}; it asks to wait for {} s", asked.as_secs());
            return Err(Error::new(why.kind(), text));
        }
        // Not all clients at once.
        let usual = self.wait.mul_f64(0.75 + 0.5 * fastrand::f64());
        self.wait *= 2;
        let end = Instant::now() + asked.unwrap_or(usual);
        loop {
            if !(self.goes_on)() {
                return Err(Error::new(Kind::Stopped, "stopped"));
            }
            match end.saturating_duration_since(Instant::now()) {
                Duration::ZERO => return Ok(()),
                left => std::thread::sleep(left.min(LOOK)),
            }
        }
    }

    /// Carries out a request until it has an answer that is not about the server's own state.
    pub(crate) fn ask(
        &mut self,
        mut request: impl FnMut() -> std::result::Result<Answer, Failed>,
    ) -> Result<Answer> {
        loop {
            let (why, asked) = match request() {
                Ok(answer) if !is_busy(answer.status) => return Ok(answer),
                Ok(answer) => {
                    let text = format!("the registry answered with status {}", answer.status);
                    (Error::new(Kind::Busy, text), retry_after(&answer))
                }
                Err(Failed::Final(error)) => return Err(error),
                Err(Failed::Broken(text)) => (Error::new(Kind::Unreachable, text), None),
            };
            self.again(&why, asked)?;
        }
    }
}

fn is_busy(status: u16) -> bool {
    matches!(status, 408 | 429 | 500 | 502 | 503 | 504)
}

/// Seconds; a date is not looked at.
fn retry_after(answer: &Answer) -> Option<Duration> {
    let text = answer.header("Retry-After")?;
    text.trim().parse().ok().map(Duration::from_secs)
}
