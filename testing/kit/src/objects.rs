//! A server of one object on loopback, which speaks what HTTP clients of object storage need (HEAD, GET with
//! `Range`, `If-Match`, `ETag`), counts requests, and does what servers and networks do wrong.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

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
    requests: Vec<(String, Option<Range<u64>>)>,
    connections: Vec<TcpStream>,
    workers: Vec<JoinHandle<()>>,
}

struct Shared {
    state: Mutex<State>,
    stopping: AtomicBool,
    /// Notified when it stops or faults are cleared.
    changed: Condvar,
}

/// The server. It stops when it is dropped.
pub struct Server {
    address: SocketAddr,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Serves a file, with the ETag `"1"`.
    ///
    /// # Panics
    /// Without a free port.
    pub fn of(object: File) -> Server {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port on loopback");
        let address = listener.local_addr().expect("its address");
        let shared = Arc::new(Shared {
            state: Mutex::new(State {
                object: Arc::new(object),
                etag: Some("\"1\"".to_owned()),
                last_modified: None,
                conditions: true,
                next: VecDeque::new(),
                always: None,
                requests: Vec::new(),
                connections: Vec::new(),
                workers: Vec::new(),
            }),
            stopping: AtomicBool::new(false),
            changed: Condvar::new(),
        });
        let accepting = Arc::clone(&shared);
        let thread = thread::spawn(move || accept(&listener, &accepting));
        Server {
            address,
            shared,
            thread: Some(thread),
        }
    }

    /// The URL of the object.
    pub fn url(&self) -> String {
        format!("http://{}/folder/disk.img", self.address)
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

    /// The requests until now: methods and ranges. They are counted from the start again.
    pub fn take_requests(&self) -> Vec<(String, Option<Range<u64>>)> {
        std::mem::take(&mut self.shared.state().requests)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.stopping.store(true, Ordering::SeqCst);
        // Ends the waiting for a connection.
        let _ = TcpStream::connect(self.address);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        let mut state = self.shared.state();
        for connection in state.connections.drain(..) {
            let _ = connection.shutdown(Shutdown::Both);
        }
        let workers = std::mem::take(&mut state.workers);
        drop(state);
        self.shared.changed.notify_all();
        for worker in workers {
            let _ = worker.join();
        }
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns when the server stops or a fault that lasts has ended.
    fn wait(&self, fault: Fault) {
        let mut state = self.state();
        while !self.stopping.load(Ordering::SeqCst) && state.always == Some(fault) {
            state = self
                .changed
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    while let Ok((connection, _)) = listener.accept() {
        if shared.stopping.load(Ordering::SeqCst) {
            return;
        }
        let Ok(copy) = connection.try_clone() else {
            continue;
        };
        let serving = Arc::clone(shared);
        let worker = thread::spawn(move || {
            // The client may go away at any time.
            let _ = serve(&connection, &serving);
            let _ = connection.shutdown(Shutdown::Both);
        });
        let mut state = shared.state();
        state.connections.push(copy);
        state.workers.push(worker);
    }
}

struct Asked {
    method: String,
    range: Option<Range<u64>>,
    if_match: Option<String>,
}

fn read_request(reader: &mut impl BufRead) -> io::Result<Option<Asked>> {
    let mut line = String::new();
    if reader.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let mut asked = Asked {
        method: line.split(' ').next().unwrap_or_default().to_owned(),
        range: None,
        if_match: None,
    };
    loop {
        line.clear();
        reader.read_line(&mut line)?;
        let Some((name, value)) = line.trim_end().split_once(": ") else {
            return Ok(Some(asked));
        };
        match name.to_ascii_lowercase().as_str() {
            "range" => {
                let range = value
                    .strip_prefix("bytes=")
                    .and_then(|range| range.split_once('-'));
                asked.range = range.and_then(|(start, end)| {
                    Some(start.parse().ok()?..end.parse::<u64>().ok()?.saturating_add(1))
                });
            }
            "if-match" => asked.if_match = Some(value.to_owned()),
            _ => {}
        }
    }
}

fn serve(connection: &TcpStream, shared: &Shared) -> io::Result<()> {
    let mut reader = BufReader::new(connection.try_clone()?);
    while let Some(asked) = read_request(&mut reader)? {
        if !reply(connection, shared, asked)? {
            break;
        }
    }
    Ok(())
}

/// Answers a request. Returns whether the connection goes on.
fn reply(mut writer: &TcpStream, shared: &Shared, asked: Asked) -> io::Result<bool> {
    let is_head = asked.method == "HEAD";
    let mut state = shared.state();
    state.requests.push((asked.method, asked.range.clone()));
    let fault = match is_head {
        true => None,
        false => state.next.pop_front().or(state.always),
    };
    let object = Arc::clone(&state.object);
    let named = [
        ("ETag", state.etag.clone()),
        ("Last-Modified", state.last_modified.clone()),
    ];
    let is_other = state.conditions && asked.if_match.is_some() && asked.if_match != state.etag;
    drop(state);
    let status = match fault {
        Some(Fault::Status(status)) => Some(status),
        Some(Fault::Closed) => return Ok(false),
        Some(fault @ Fault::Silent) => {
            shared.wait(fault);
            return Ok(false);
        }
        _ => is_other.then_some(412),
    };
    if let Some(status) = status {
        write!(writer, "HTTP/1.1 {status} No\r\nContent-Length: 0\r\n\r\n")?;
        return Ok(true);
    }
    let len = object.metadata()?.len();
    let mut is_part = !is_head && asked.range.is_some();
    let mut range = asked.range.unwrap_or(0..len);
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
