//! A server of S3 on loopback with one bucket, in memory: objects are read, and uploaded in parts. It counts
//! what is asked, and does what servers and networks do wrong.
//!
//! Signatures are not checked. A real server is `versitygw`, where tests need one.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fmt::Write as _;
use std::io::{self, Write};
use std::net::TcpStream;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use crate::http::{Listener, Request};
use crate::objects::range_of;

/// What a client asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    /// Whether there is an object.
    Head,
    /// Bytes of an object.
    Get,
    /// The begin of an upload.
    Begin,
    /// A part of it.
    Part,
    /// Its completion.
    Complete,
    /// Its end without an object.
    Abort,
}

/// What goes wrong with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// It is not carried out, and this status is sent.
    Status(u16),
    /// It is not carried out, and the connection is closed.
    Closed,
    /// It is carried out, but the connection is closed instead of a reply.
    Lost,
    /// Nothing is done, and nothing sent, until the server stops or its faults are forgotten.
    Silent,
}

#[derive(Clone)]
struct Object {
    bytes: Arc<Vec<u8>>,
    etag: String,
    /// Metadata of the user: names and values.
    metadata: Vec<(String, String)>,
}

struct Upload {
    path: String,
    parts: BTreeMap<u32, (String, Vec<u8>)>,
    metadata: Vec<(String, String)>,
}

#[derive(Default)]
struct State {
    objects: HashMap<String, Object>,
    uploads: HashMap<String, Upload>,
    /// The number of all objects, parts and uploads until now.
    made: u64,
    steps: BTreeMap<Step, u64>,
    wrong: Vec<(Step, VecDeque<Wrong>)>,
    most_bytes: u64,
    /// How often all faults were forgotten.
    forgotten: u64,
    stopping: bool,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    /// Notified of every request, and when it stops.
    changed: Condvar,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until something is so.
    fn wait(&self, mut is_so: impl FnMut(&State) -> bool) {
        let state = self.changed.wait_while(self.state(), |state| !is_so(state));
        drop(state);
    }
}

/// The server. It stops when it is dropped.
pub struct Bucket {
    listener: Listener,
    shared: Arc<Shared>,
}

impl Default for Bucket {
    fn default() -> Bucket {
        Bucket::new()
    }
}

impl Bucket {
    /// An empty one.
    ///
    /// # Panics
    /// Without a free port.
    pub fn new() -> Bucket {
        let shared = Arc::<Shared>::default();
        let answering = Arc::clone(&shared);
        let listener = Listener::new(move |request, connection| {
            let reply = answering.answer(&request);
            reply.map_or(Ok(false), |reply| reply.send(connection))
        });
        Bucket { listener, shared }
    }

    /// What the environment of a client must have, so that `s3://bucket/KEY` is an object here.
    pub fn environment(&self) -> [(&'static str, String); 5] {
        [
            ("AWS_ACCESS_KEY_ID", "user".to_owned()),
            ("AWS_SECRET_ACCESS_KEY", "password-of-tests".to_owned()),
            ("AWS_REGION", "us-east-1".to_owned()),
            (
                "AWS_ENDPOINT_URL",
                format!("http://{}", self.listener.address()),
            ),
            ("AWS_ALLOW_HTTP", "true".to_owned()),
        ]
    }

    /// The bytes of an object; `None` if there is none.
    pub fn bytes(&self, key: &str) -> Option<Arc<Vec<u8>>> {
        let state = self.shared.state();
        let object = state.objects.get(&path_of(key));
        object.map(|object| Arc::clone(&object.bytes))
    }

    /// Puts an object there.
    pub fn put(&self, key: &str, bytes: Vec<u8>) {
        self.shared.state().put(path_of(key), bytes, Vec::new());
    }

    /// The number of uploads that were begun, and neither completed nor aborted.
    pub fn open_uploads(&self) -> usize {
        self.shared.state().uploads.len()
    }

    /// The next requests for this go wrong so.
    pub fn fail_next(&self, step: Step, wrong: impl IntoIterator<Item = Wrong>) {
        let wrong = wrong.into_iter().collect();
        self.shared.state().wrong.push((step, wrong));
    }

    /// Nothing goes wrong from now on; what is silent ends.
    pub fn forget_faults(&self) {
        let mut state = self.shared.state();
        state.wrong.clear();
        state.forgotten += 1;
        drop(state);
        self.shared.changed.notify_all();
    }

    /// How often this was asked for since the last call.
    pub fn take_count(&self, step: Step) -> u64 {
        self.shared.state().steps.remove(&step).unwrap_or(0)
    }

    /// Returns when this was asked for so often.
    pub fn wait_for(&self, step: Step, count: u64) {
        self.shared
            .wait(|state| state.steps.get(&step).is_some_and(|it| *it >= count));
    }

    /// The most bytes of a request until now.
    pub fn most_bytes(&self) -> u64 {
        self.shared.state().most_bytes
    }
}

impl Drop for Bucket {
    fn drop(&mut self) {
        self.shared.state().stopping = true;
        self.shared.changed.notify_all();
        self.listener.stop();
    }
}

fn path_of(key: &str) -> String {
    format!("/bucket/{key}")
}

struct Reply {
    status: u16,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
    /// Of a reply to HEAD, which has no body.
    len_bytes: Option<usize>,
}

impl Reply {
    fn of(status: u16) -> Reply {
        Reply {
            status,
            headers: Vec::new(),
            body: Vec::new(),
            len_bytes: None,
        }
    }

    fn xml(text: String) -> Reply {
        Reply {
            body: text.into_bytes(),
            ..Reply::of(200)
        }
    }

    fn send(self, mut to: &TcpStream) -> io::Result<bool> {
        let len = self.len_bytes.unwrap_or(self.body.len());
        let mut head = format!("HTTP/1.1 {} Said\r\nContent-Length: {len}\r\n", self.status);
        for (name, value) in &self.headers {
            let _ = write!(head, "{name}: {value}\r\n");
        }
        head.push_str("\r\n");
        to.write_all(head.as_bytes())?;
        to.write_all(&self.body)?;
        Ok(true)
    }
}

impl Shared {
    /// `None`: the connection is closed.
    fn answer(&self, request: &Request) -> Option<Reply> {
        let (path, query) = request.target.split_once('?').unwrap_or_default();
        let path = if path.is_empty() {
            &request.target
        } else {
            path
        };
        let value = |name: &str| {
            let mut parts = query
                .split('&')
                .map(|part| part.split_once('=').unwrap_or((part, "")));
            parts.find(|(it, _)| *it == name).map(|(_, value)| value)
        };
        let step = match (request.method.as_str(), value("uploadId").is_some()) {
            ("HEAD", _) => Step::Head,
            ("GET", _) => Step::Get,
            ("POST", false) => Step::Begin,
            ("PUT", true) => Step::Part,
            ("POST", true) => Step::Complete,
            ("DELETE", true) => Step::Abort,
            _ => return Some(Reply::of(501)),
        };
        let mut state = self.state();
        *state.steps.entry(step).or_default() += 1;
        state.most_bytes = state.most_bytes.max(request.body.len() as u64);
        self.changed.notify_all();
        let wrong = state.next_wrong(step);
        match wrong {
            Some(Wrong::Status(status)) => return Some(Reply::of(status)),
            Some(Wrong::Closed) => return None,
            Some(Wrong::Silent) => {
                let forgotten = state.forgotten;
                drop(state);
                self.wait(|state| state.stopping || state.forgotten > forgotten);
                return None;
            }
            Some(Wrong::Lost) | None => {}
        }
        let upload = value("uploadId").unwrap_or_default();
        let reply = match step {
            Step::Head | Step::Get => state.read(path, request),
            Step::Begin => state.begin(path, request),
            Step::Part => state.part(upload, value("partNumber"), request),
            Step::Complete => state.complete(upload, request),
            Step::Abort => Reply::of(match state.uploads.remove(upload) {
                Some(_) => 204,
                None => 404,
            }),
        };
        wrong.is_none().then_some(reply)
    }
}

impl State {
    fn next_wrong(&mut self, step: Step) -> Option<Wrong> {
        let mut wrong = self.wrong.iter_mut();
        let (_, next) = wrong.find(|(it, next)| *it == step && !next.is_empty())?;
        next.pop_front()
    }

    fn number(&mut self) -> u64 {
        self.made += 1;
        self.made
    }

    fn put(&mut self, path: String, bytes: Vec<u8>, metadata: Vec<(String, String)>) -> String {
        let etag = format!("\"{}\"", self.number());
        let object = Object {
            bytes: Arc::new(bytes),
            etag: etag.clone(),
            metadata,
        };
        self.objects.insert(path, object);
        etag
    }

    fn read(&self, path: &str, request: &Request) -> Reply {
        let Some(object) = self.objects.get(path) else {
            return Reply::of(404);
        };
        let if_match = request.header("if-match");
        if if_match.is_some_and(|it| it != object.etag) {
            return Reply::of(412);
        }
        let len = object.bytes.len();
        let mut reply = Reply::of(200);
        reply.headers = object.metadata.clone();
        reply.headers.push(("ETag".into(), object.etag.clone()));
        let time = "Fri, 27 Nov 2026 00:00:00 GMT";
        reply.headers.push(("Last-Modified".into(), time.into()));
        if request.method == "HEAD" {
            reply.len_bytes = Some(len);
            return reply;
        }
        let (mut from, mut end) = (0, len);
        if let Some(range) = range_of(request) {
            (from, end) = (range.start as usize, len.min(range.end as usize));
            if from >= end {
                return Reply::of(416);
            }
            let range = format!("bytes {from}-{}/{len}", end - 1);
            reply.headers.push(("Content-Range".into(), range));
            reply.status = 206;
        }
        reply.body = object.bytes[from..end].to_vec();
        reply
    }

    fn begin(&mut self, path: &str, request: &Request) -> Reply {
        if !path.starts_with("/bucket/") {
            return Reply::of(404);
        }
        let id = format!("upload-{}", self.number());
        let metadata = request.headers_with("x-amz-meta-");
        let upload = Upload {
            path: path.to_owned(),
            parts: BTreeMap::new(),
            metadata,
        };
        self.uploads.insert(id.clone(), upload);
        Reply::xml(format!(
            "<InitiateMultipartUploadResult><UploadId>{id}</UploadId></InitiateMultipartUploadResult>"
        ))
    }

    fn part(&mut self, upload: &str, number: Option<&str>, request: &Request) -> Reply {
        let etag = format!("\"part-{}\"", self.number());
        let number = number.and_then(|number| number.parse().ok());
        match (self.uploads.get_mut(upload), number) {
            (Some(upload), Some(number)) => {
                let part = (etag.clone(), request.body.clone());
                upload.parts.insert(number, part);
            }
            _ => return Reply::of(404),
        }
        let mut reply = Reply::of(200);
        reply.headers.push(("ETag".into(), etag));
        reply
    }

    fn complete(&mut self, id: &str, request: &Request) -> Reply {
        let Some(upload) = self.uploads.get(id) else {
            return Reply::of(404);
        };
        let is_conditional = request.header("if-none-match") == Some("*");
        if is_conditional && self.objects.contains_key(&upload.path) {
            return Reply::of(412);
        }
        // The parts that the client lists must be those that are here.
        let text = String::from_utf8_lossy(&request.body).replace("&quot;", "\"");
        let named = |name: &str| -> Vec<String> {
            let tag = format!("<{name}>");
            let values = text
                .split(&tag)
                .skip(1)
                .filter_map(|piece| piece.split_once('<'));
            values.map(|(value, _)| value.to_owned()).collect()
        };
        let listed: Vec<(String, String)> = (named("PartNumber").into_iter())
            .zip(named("ETag"))
            .collect();
        let here = upload.parts.iter();
        let here: Vec<(String, String)> = here
            .map(|(number, (etag, _))| (number.to_string(), etag.clone()))
            .collect();
        if listed.is_empty() || listed != here {
            return Reply::of(400);
        }
        let Some(upload) = self.uploads.remove(id) else {
            return Reply::of(404);
        };
        let bytes = upload.parts.into_values().flat_map(|(_, bytes)| bytes);
        let etag = self.put(upload.path, bytes.collect(), upload.metadata);
        let etag = etag.replace('"', "&quot;");
        Reply::xml(format!(
            "<CompleteMultipartUploadResult><ETag>{etag}</ETag></CompleteMultipartUploadResult>"
        ))
    }
}
