//! Threads that share work. A limit on processes may leave fewer than were asked for.

use std::thread::{Builder, Scope};

use crate::error::{Error, Result};

/// Starts up to `count` threads that each run what `body` makes, as many as the system allows.
///
/// # Errors
/// The system's, if it allows none.
pub(crate) fn start<'scope, F>(
    scope: &'scope Scope<'scope, '_>,
    count: usize,
    mut body: impl FnMut() -> F,
) -> Result<()>
where
    F: FnOnce() + Send + 'scope,
{
    for number in 0..count {
        let started = Builder::new().spawn_scoped(scope, body());
        match started {
            Err(error) if number == 0 => return Err(Error::io("starting a thread", error)),
            Err(_) => break,
            Ok(_) => {}
        }
    }
    Ok(())
}
