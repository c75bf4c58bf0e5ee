//! Objects that are open in this process. Opening one again within a moment shares it, with its chunks: a
//! command looks at an image several times before it opens the volume.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use throughline_locks::{Mutex, Rank};

use crate::name::ObjectName;
use crate::object::Object;
use crate::options::Options;

/// For how long an object that was found is taken to be the present one. Whether it was replaced since is
/// seen by every request, as always.
const MOMENT: Duration = Duration::from_secs(5);

/// Objects by name, and when they were found.
type Open = HashMap<ObjectName, (Weak<Object>, Instant)>;
static OPEN: Mutex<Option<Open>> = Mutex::ranked(Rank::Objects, None);

/// The object with this name: one that is open in this process since a moment, or opened with the options of
/// the environment.
///
/// # Errors
/// As [`Object::open`].
pub fn open_shared(name: &ObjectName) -> io::Result<Arc<Object>> {
    let known = OPEN.lock().as_ref().and_then(|open| {
        let (object, opened) = open.get(name)?;
        let is_present = opened.elapsed() < MOMENT;
        object.upgrade().filter(|_| is_present)
    });
    if let Some(object) = known {
        return Ok(object);
    }
    let object = Arc::new(Object::open(name, &Options::from_env())?);
    let mut open = OPEN.lock();
    let open = open.get_or_insert_default();
    open.retain(|_, (object, _)| object.strong_count() > 0);
    open.insert(name.clone(), (Arc::downgrade(&object), Instant::now()));
    Ok(object)
}
