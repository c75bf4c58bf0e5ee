//! A server of one object on loopback, which speaks what HTTP clients of object storage need (HEAD, GET with
//! `Range`, `If-Match`, `ETag`), counts requests, and does what servers and networks do wrong.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Write};
use std::net::TcpStream;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::http::{Listener, Request};

/// What is wrong with a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// This status, without a body.
    Status(u16),
    /// The connection is closed instead of a reply.
    Closed,
    /// The connection is closed after half of the body.
    Cut,
    /// Half of the body, and its length, as if that was all.
    Short,
    /// Nothing is sent, and the connection stays open.
    Silent,
    /// Half of the body, and the connection stays open.
    Stalled,
    /// Another range than was asked for, and it says so.
    OtherRange,
    /// The whole object, as from a server that does not know ranges.
    Whole,
}

struct State {
    object: Arc<File>,
    etag: Option<String>,
    last_modified: Option<String>,
    /// Whether conditions of requests are checked.
    conditions: bool,
    /// For the next requests, but HEAD.
    next: VecDeque<Fault>,
    /// For all of them, if there is none in `next`.
    always: Option<Fault>,
    /// Requests whose path and query do not hold this are denied.
    required: Option<String>,
    /// Requests without this value of the header `Authorization` are denied.
    authorization: Option<String>,
    /// Requests whose path and query hold the first are sent on to the second.
    redirect: Option<(String, String)>,
    /// How much later replies to GET begin.
    delay: Duration,
    requests: Vec<Asked>,
    stopping: bool,
}

/// A request that was counted.
#[derive(Clone, Debug)]
pub struct Asked {
    /// GET or HEAD.
    pub method: String,
    /// The path, of any object: they are all the same one.
    pub path: String,
    /// The bytes that it asked for, up to the end of the object.
    pub range: Option<Range<u64>>,
    /// All headers, with names in lower case.
    pub headers: Vec<(String, String)>,
}

impl Asked {
    /// The value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut headers = self.headers.iter();
        headers
            .find(|(it, _)| it == name)
            .map(|(_, value)| &**value)
    }
}

struct Shared {
    state: Mutex<State>,
    /// Notified when it stops or faults are cleared.
    changed: Condvar,
}

/// The server. It stops when it is dropped.
pub struct Server {
    listener: Listener,
    shared: Arc<Shared>,
}

impl Server {
    /// Serves a file, with the ETag `"1"`.
    ///
    /// # Panics
    /// Without a free port.
    pub fn of(object: File) -> Server {
        let shared = Arc::new(Shared {
            state: Mutex::new(State {
                object: Arc::new(object),
                etag: Some("\"1\"".to_owned()),
                last_modified: None,
                conditions: true,
                next: VecDeque::new(),
                always: None,
                required: None,
                authorization: None,
                redirect: None,
                delay: Duration::ZERO,
                requests: Vec::new(),
                stopping: false,
            }),
            changed: Condvar::new(),
        });
        let answering = Arc::clone(&shared);
        let listener =
            Listener::new(move |request, connection| reply(connection, &answering, &request));
        Server { listener, shared }
    }

    /// The URL of the object.
    pub fn url(&self) -> String {
        self.url_of("folder")
    }

    /// The URL of the same object for one of many clients, whose requests are told apart by the path.
    pub fn url_of(&self, client: &str) -> String {
        format!("http://{}/{client}/disk.img", self.listener.address())
    }

    /// Replaces the object.
    pub fn replace(&self, object: File, etag: Option<&str>, last_modified: Option<&str>) {
        let mut state = self.shared.state();
        state.object = Arc::new(object);
        state.etag = etag.map(str::to_owned);
        state.last_modified = last_modified.map(str::to_owned);
    }

    /// Whether conditions of requests are checked; if not, the client has to notice.
    pub fn check_conditions(&self, checked: bool) {
        self.shared.state().conditions = checked;
    }

    /// The next replies to GET are wrong so.
    pub fn fail_next(&self, faults: impl IntoIterator<Item = Fault>) {
        self.shared.state().next.extend(faults);
    }

    /// All replies to GET are wrong so, or none.
    pub fn fail_always(&self, fault: Option<Fault>) {
        let mut state = self.shared.state();
        state.next.clear();
        state.always = fault;
        drop(state);
        self.shared.changed.notify_all();
    }

    /// Denies requests whose path and query do not hold this, as a server does without a signature.
    pub fn require(&self, part: &str) {
        self.shared.state().required = Some(part.to_owned());
    }

    /// Denies requests without this value of the header `Authorization`.
    pub fn require_authorization(&self, value: &str) {
        self.shared.state().authorization = Some(value.to_owned());
    }

    /// Sends requests whose path and query hold `part` on to another URL.
    pub fn redirect(&self, part: &str, to: &str) {
        self.shared.state().redirect = Some((part.to_owned(), to.to_owned()));
    }

    /// All replies to GET begin so much later: those of a slow server.
    pub fn delay(&self, delay: Duration) {
        self.shared.state().delay = delay;
    }

    /// The requests until now: methods and ranges. They are counted from the start again.
    pub fn take_requests(&self) -> Vec<(String, Option<Range<u64>>)> {
        let asked = self.take_asked().into_iter();
        asked.map(|asked| (asked.method, asked.range)).collect()
    }

    /// The same, with the path.
    pub fn take_asked(&self) -> Vec<Asked> {
        std::mem::take(&mut self.shared.state().requests)
    }

    /// The number of requests that [`Server::take_requests`] would return.
    pub fn asked_count(&self) -> usize {
        self.shared.state().requests.len()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.state().stopping = true;
        self.shared.changed.notify_all();
        self.listener.stop();
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns when the server stops or a fault that lasts has ended.
    fn wait(&self, fault: Fault) {
        let mut state = self.state();
        while !state.stopping && state.always == Some(fault) {
            state = self
                .changed
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// The bytes of `bytes=FIRST-LAST`.
pub(crate) fn range_of(request: &Request) -> Option<Range<u64>> {
    let (start, last) = request
        .header("range")?
        .strip_prefix("bytes=")?
        .split_once('-')?;
    Some(start.parse().ok()?..last.parse::<u64>().ok()?.saturating_add(1))
}

/// Answers a request. Returns whether the connection goes on.
fn reply(mut writer: &TcpStream, shared: &Shared, request: &Request) -> io::Result<bool> {
    let is_head = request.method == "HEAD";
    let asked_range = range_of(request);
    let if_match = request.header("if-match");
    let mut state = shared.state();
    state.requests.push(Asked {
        method: request.method.clone(),
        path: request.target.clone(),
        range: asked_range.clone(),
        headers: request.headers().to_vec(),
    });
    let to = state.redirect.as_ref();
    if let Some((_, to)) = to.filter(|(part, _)| request.target.contains(part)) {
        let to = to.clone();
        drop(state);
        let reply =
            format!("HTTP/1.1 307 Elsewhere\r\nLocation: {to}\r\nContent-Length: 0\r\n\r\n");
        writer.write_all(reply.as_bytes())?;
        return Ok(true);
    }
    let fault = match is_head {
        true => None,
        false => state.next.pop_front().or(state.always),
    };
    let object = Arc::clone(&state.object);
    let named = [
        ("ETag", state.etag.clone()),
        ("Last-Modified", state.last_modified.clone()),
    ];
    let required = state.required.as_deref();
    let is_denied = required.is_some_and(|part| !request.target.contains(part));
    let is_unknown = state.authorization.is_some()
        && state.authorization.as_deref() != request.header("authorization");
    let delay = if is_head { Duration::ZERO } else { state.delay };
    let is_other = state.conditions && if_match.is_some() && if_match != state.etag.as_deref();
    drop(state);
    std::thread::sleep(delay);
    let status = match fault {
        Some(Fault::Status(status)) => Some(status),
        Some(Fault::Closed) => return Ok(false),
        Some(fault @ Fault::Silent) => {
            shared.wait(fault);
            return Ok(false);
        }
        _ if is_unknown => Some(401),
        _ if is_denied => Some(403),
        _ => is_other.then_some(412),
    };
    if let Some(status) = status {
        write!(writer, "HTTP/1.1 {status} No\r\nContent-Length: 0\r\n\r\n")?;
        return Ok(true);
    }
    let len = object.metadata()?.len();
    let mut is_part = !is_head && asked_range.is_some();
    let mut range = asked_range.unwrap_or(0..len);
    range.end = range.end.min(len);
    match fault {
        Some(Fault::OtherRange) => range = range.start + 512..(range.end + 512).min(len),
        Some(Fault::Whole) => (range, is_part) = (0..len, false),
        _ => {}
    }
    let body = range.end.saturating_sub(range.start);
    let sent = match fault {
        Some(Fault::Cut | Fault::Short | Fault::Stalled) => body / 2,
        _ => body,
    };
    let promised = if fault == Some(Fault::Short) {
        sent
    } else {
        body
    };
    let status = if is_part {
        "206 Partial Content"
    } else {
        "200 OK"
    };
    let mut head = format!("HTTP/1.1 {status}\r\nContent-Length: {promised}\r\n");
    if is_part {
        let last = range.end.saturating_sub(1);
        let _ = write!(
            head,
            "Content-Range: bytes {}-{last}/{len}\r\n",
            range.start
        );
    }
    for (name, value) in named {
        if let Some(value) = value {
            let _ = write!(head, "{name}: {value}\r\n");
        }
    }
    write!(writer, "{head}\r\n")?;
    if is_head {
        return Ok(true);
    }
    send(&mut writer, &object, range.start, sent)?;
    if let Some(fault @ Fault::Stalled) = fault {
        shared.wait(fault);
    }
    Ok(!matches!(fault, Some(Fault::Cut | Fault::Stalled)))
}

fn send(to: &mut impl Write, object: &File, mut at: u64, len: u64) -> io::Result<()> {
    let end = at + len;
    let mut piece = vec![0; 256 << 10];
    while at < end {
        let now = (end - at).min(piece.len() as u64) as usize;
        object.read_exact_at(&mut piece[..now], at)?;
        to.write_all(&piece[..now])?;
        at += now as u64;
    }
    Ok(())
}
