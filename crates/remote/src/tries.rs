//! [`Tries`]: requests that fail are repeated, within bounded time.

use std::time::Duration;

use tokio::time::{Instant, sleep, timeout_at};

use crate::failure::{Attempt, Failure};

/// The first pause before an attempt is repeated.
const PAUSE: Duration = Duration::from_millis(50);
/// The longest pause.
const MAX_PAUSE: Duration = Duration::from_secs(2);
/// The slowest line on which what is sent is waited for.
const SLOWEST_BYTES_PER_S: u64 = 128 << 10;

/// The attempts since the last success.
pub(crate) struct Tries {
    patience: Duration,
    /// For how long a reply may be silent.
    reply: Duration,
    /// When it is given up.
    end: Instant,
    attempts: u32,
}

impl Tries {
    pub(crate) fn new(patience: Duration) -> Tries {
        Tries::with_reply(patience, patience / 3)
    }

    /// Of requests with so many bytes in them: that they arrive is seen only by the reply.
    pub(crate) fn sending(patience: Duration, bytes: u64) -> Tries {
        let sent = Duration::from_secs(bytes / SLOWEST_BYTES_PER_S);
        Tries::with_reply(patience.saturating_add(sent), patience / 3 + sent)
    }

    fn with_reply(patience: Duration, reply: Duration) -> Tries {
        Tries {
            patience,
            reply,
            end: Instant::now() + patience,
            attempts: 1,
        }
    }

    pub(crate) fn progress(&mut self) {
        *self = Tries::with_reply(self.patience, self.reply);
    }

    /// How long to wait for the next bytes: a silent connection is given up before the patience ends.
    pub(crate) fn deadline(&self) -> Instant {
        self.end.min(Instant::now() + self.reply)
    }

    pub(crate) fn silent(&self) -> Attempt {
        let seconds = self.reply.as_secs_f32();
        Attempt::Again(format!("no answer for {seconds} s"))
    }

    /// Returns when the next attempt may begin.
    ///
    /// # Errors
    /// If there is none.
    pub(crate) async fn again(&mut self, failed: Attempt) -> Result<(), Failure> {
        let last = match failed {
            Attempt::Final(failure) => return Err(failure),
            Attempt::Again(last) => last,
        };
        let pause = PAUSE
            .saturating_mul(1 << self.attempts.min(10))
            .min(MAX_PAUSE);
        let next = Instant::now() + pause.min(self.patience / 4);
        if next >= self.end {
            return Err(Failure::Exhausted {
                patience: self.patience,
                attempts: self.attempts,
                last,
            });
        }
        self.attempts = self.attempts.saturating_add(1);
        sleep(next - Instant::now()).await;
        Ok(())
    }

    /// Asks until there is a good answer.
    ///
    /// # Errors
    /// If there is none.
    pub(crate) async fn until_good<T, E: Into<Attempt>, A>(
        mut self,
        mut ask: impl FnMut() -> A,
    ) -> Result<T, Failure>
    where
        A: Future<Output = Result<T, E>>,
    {
        loop {
            let failed = match timeout_at(self.deadline(), ask()).await {
                Ok(Ok(answer)) => return Ok(answer),
                Ok(Err(failed)) => failed.into(),
                Err(_) => self.silent(),
            };
            self.again(failed).await?;
        }
    }
}
