//! [`Pin`]: what identifies the version of an object that was opened.
//!
//! A strong ETag is sent with every request (`If-Match`), and compared with the one of every reply, as there
//! are servers that ignore the condition. A weak ETag never matches a condition, so it is only compared.
//! Without an ETag, the time of change and the length of every reply are compared.

use object_store::{GetOptions, GetRange, ObjectMeta};

use crate::failure::Failure;

#[derive(Clone, Debug)]
pub(crate) struct Pin {
    etag: Option<String>,
    /// Nanoseconds since 1970; 0 if the server does not say.
    changed_ns: i64,
    meta: ObjectMeta,
    pub(crate) len_bytes: u64,
}

impl Pin {
    /// # Errors
    /// [`Failure::Unpinned`].
    pub(crate) fn of(meta: &ObjectMeta) -> Result<Pin, Failure> {
        let pin = Pin {
            etag: meta.e_tag.clone().filter(|etag| !is_empty(etag)),
            changed_ns: meta.last_modified.timestamp_nanos_opt().unwrap_or(0),
            meta: meta.clone(),
            len_bytes: meta.size,
        };
        match pin.etag.is_none() && pin.changed_ns == 0 {
            true => Err(Failure::Unpinned),
            false => Ok(pin),
        }
    }

    /// A request for a range of this version.
    pub(crate) fn request(&self, range: std::ops::Range<u64>) -> GetOptions {
        let mut options = GetOptions {
            range: Some(GetRange::Bounded(range)),
            ..GetOptions::default()
        };
        match &self.etag {
            Some(etag) if !etag.starts_with("W/") => options.if_match = Some(etag.clone()),
            // A time of change is sent in whole seconds, but some servers compare fractions.
            _ => {}
        }
        options
    }

    /// Whether a reply is of this version.
    ///
    /// # Errors
    /// [`Failure::Replaced`].
    pub(crate) fn check(&self, reply: &ObjectMeta) -> Result<(), Failure> {
        let replaced = |what: &str| Err(Failure::Replaced(format!("{what} changed")));
        if reply.size != self.len_bytes {
            return replaced("its length");
        }
        match &self.etag {
            Some(_) if reply.e_tag != self.etag => replaced("its ETag"),
            None if reply.e_tag.as_ref().is_some_and(|etag| !is_empty(etag)) => {
                replaced("its ETag")
            }
            None if reply.last_modified != self.meta.last_modified => {
                replaced("its time of change")
            }
            _ => Ok(()),
        }
    }

    /// What tells this version from others, for the name of its cache.
    pub(crate) fn key(&self) -> String {
        let Pin {
            etag,
            changed_ns,
            len_bytes,
            ..
        } = self;
        match etag {
            Some(etag) => format!("etag {etag} {len_bytes}"),
            None => format!("time {changed_ns} {len_bytes}"),
        }
    }
}

/// Servers send empty ETags for objects of which they know none.
fn is_empty(etag: &str) -> bool {
    etag.trim_start_matches("W/").trim_matches('"').is_empty()
}
