//! [`Connections`]: requests over `ureq`, which blocks, for `object_store`, which does not. Each has a
//! thread.
//!
//! ```text
//!  call    takes an idle connection, or a new one             │ waits for the head │ returns it and a body
//!  thread  sends the request, head → │ pieces of the body →    │ puts the connection back for the next
//! ```
//!
//! Invariants:
//! - Dropping a reply, its head or its body, closes the connection: nothing waits for the rest of it.
//! - A thread that nobody waits for ends at once; one that looks up a name or connects, within the time for
//!   that.
//! - A connection is used again only if the last reply was read to its end.

use std::fmt;
use std::io::{self, Cursor, Read};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::StreamExt;
use http_body::{Body, Frame};
use object_store::client::{
    HttpError, HttpErrorKind, HttpRequest, HttpRequestBody, HttpResponse, HttpResponseBody,
    HttpService,
};
use throughline_locks::{Condvar, Mutex};
use throughline_web::Proxies;
use tokio::sync::{mpsc, oneshot};
use ureq::config::Config;
use ureq::http::header::CONTENT_LENGTH;
use ureq::http::response::Parts;
use ureq::http::{HeaderValue, Method, Request, Uri};
use ureq::{Agent, SendBody};

/// What is read of a body at once, and the size of buffers.
pub(crate) const PIECE_BYTES: usize = 64 << 10;
/// Pieces that were read and not taken yet.
const PIECES: usize = 4;
/// How long the end waits for threads that were told to end.
const LAST: Duration = Duration::from_secs(2);

/// Requests to any servers, with the same settings.
pub(crate) struct Connections {
    config: Config,
    proxies: Proxies,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    idle: Mutex<Vec<Connection>>,
    threads: Mutex<usize>,
    none: Condvar,
}

/// An agent with one connection at most: `ureq` can only close all connections of an agent together.
struct Connection {
    /// Scheme and host with port.
    to: (String, String),
    agent: Agent,
    since: Instant,
}

impl Connections {
    /// With settings of [`throughline_web::agent`].
    pub(crate) fn new(config: Config, proxies: Proxies) -> Connections {
        Connections {
            config,
            proxies,
            shared: Arc::default(),
        }
    }

    /// The connection to a server that was used last, or a new one.
    fn connection(&self, uri: &Uri) -> Connection {
        let part = |text: Option<&str>| text.unwrap_or_default().to_ascii_lowercase();
        let to = (
            part(uri.scheme_str()),
            part(uri.authority().map(|at| at.as_str())),
        );
        let mut idle = self.shared.idle.lock();
        let old = self.config.max_idle_age();
        idle.retain(|connection| connection.since.elapsed() < old);
        match idle.iter().rposition(|connection| connection.to == to) {
            Some(at) => idle.remove(at),
            None => Connection {
                to,
                agent: self.config.new_agent(),
                since: Instant::now(),
            },
        }
    }
}

impl fmt::Debug for Connections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Connections")
    }
}

impl Drop for Connections {
    /// Its callers are gone, and have closed what they waited for.
    fn drop(&mut self) {
        let mut count = self.shared.threads.lock();
        let is_any = |count: &mut usize| *count > 0;
        self.shared.none.wait_while_for(&mut count, is_any, LAST);
    }
}

#[async_trait]
impl HttpService for Connections {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let (mut head, body) = request.into_parts();
        let sent = Sent::of(body, &head.method).await?;
        if let Some(sent) = &sent {
            let len = || HeaderValue::from(sent.len_bytes);
            head.headers.entry(CONTENT_LENGTH).or_insert_with(len);
        }
        let connection = self.connection(&head.uri);
        let host = head.uri.host().unwrap_or_default();
        let proxy = self.proxies.of(&connection.to.0, host);
        let request = connection
            .agent
            .configure_request(Request::from_parts(head, ()));
        let request = request.proxy(proxy).build();
        let (to_head, answer) = oneshot::channel();
        let (to_body, pieces) = mpsc::channel(PIECES);
        let held = Arc::new(Mutex::new(Some(connection)));
        let reply = Reply {
            pieces,
            connection: Arc::clone(&held),
        };
        let exchange = Exchange {
            connection: held,
            shared: Arc::clone(&self.shared),
            to_body,
        };
        *self.shared.threads.lock() += 1;
        let counted = Counted(Arc::clone(&self.shared));
        let thread = std::thread::Builder::new().name("object-http".to_owned());
        let begun = thread.spawn(move || {
            exchange.run(request, sent, to_head);
            drop(counted);
        });
        begun.map_err(|error| HttpError::new(HttpErrorKind::Request, error))?;
        let head = answer.await.map_err(|error| {
            // The thread has panicked.
            HttpError::new(HttpErrorKind::Unknown, error)
        })??;
        Ok(HttpResponse::from_parts(head, HttpResponseBody::new(reply)))
    }
}

/// A thread that is counted.
struct Counted(Arc<Shared>);

impl Drop for Counted {
    fn drop(&mut self) {
        let mut count = self.0.threads.lock();
        *count = count.saturating_sub(1);
        self.0.none.notify_all();
    }
}

/// A connection in use. Whoever takes it first decides: the thread, that it is used again, or the caller,
/// that it is closed.
type InUse = Arc<Mutex<Option<Connection>>>;

/// The body of a reply, as the caller sees it.
struct Reply {
    pieces: mpsc::Receiver<Result<Bytes, HttpError>>,
    connection: InUse,
}

impl Body for Reply {
    type Data = Bytes;
    type Error = HttpError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, HttpError>>> {
        let piece = self.pieces.poll_recv(context);
        piece.map(|piece| piece.map(|piece| piece.map(Frame::data)))
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        let connection = self.connection.lock().take();
        if let Some(connection) = connection {
            connection.agent.shutdown();
        }
    }
}

/// One request and its reply, in a thread.
struct Exchange {
    connection: InUse,
    shared: Arc<Shared>,
    to_body: mpsc::Sender<Result<Bytes, HttpError>>,
}

impl Exchange {
    fn run(
        self,
        request: Request<()>,
        sent: Option<Sent>,
        to_head: oneshot::Sender<Result<Parts, HttpError>>,
    ) {
        let agent = self
            .connection
            .lock()
            .as_ref()
            .map(|connection| connection.agent.clone());
        let Some(agent) = agent else {
            return;
        };
        let is_head = request.method() == Method::HEAD;
        let answer = match sent {
            Some(sent) => agent.run(request.map(|()| SendBody::from_owned_reader(sent))),
            None => agent.run(request),
        };
        drop(agent);
        let (mut head, body) = match answer {
            Ok(answer) => answer.into_parts(),
            Err(error) => {
                let _ = to_head.send(Err(broken(error)));
                return;
            }
        };
        // Notes of `ureq` about the request.
        head.extensions.clear();
        let left = match is_head || matches!(head.status.as_u16(), 204 | 304) {
            true => Some(0),
            false => body.content_length(),
        };
        let reader = body.into_reader();
        match left {
            Some(0) => {
                let read = self.end(reader);
                let _ = to_head.send(read.map(|()| head).map_err(lost));
            }
            _ if to_head.send(Ok(head)).is_ok() => self.receive(reader, left),
            _ => {}
        }
    }

    /// Passes the body on. The connection is put back before the last piece is sent: the caller may know that
    /// it is the last, and drops the reply then.
    fn receive(&self, mut reader: impl Read, mut left: Option<u64>) {
        let mut buffer = vec![0; PIECE_BYTES];
        loop {
            let len = match reader.read(&mut buffer) {
                Ok(0) => {
                    let _ = self.end(reader);
                    return;
                }
                Ok(len) => len,
                Err(error) => {
                    let _ = self.to_body.blocking_send(Err(lost(error)));
                    return;
                }
            };
            left = left.map(|left| left.saturating_sub(len as u64));
            let piece = Bytes::copy_from_slice(buffer.get(..len).unwrap_or_default());
            if left == Some(0) {
                // If the body does not end there, the connection is not used again, but all that was
                // promised is there.
                let _ = self.end(reader);
                let _ = self.to_body.blocking_send(Ok(piece));
                return;
            }
            if self.to_body.blocking_send(Ok(piece)).is_err() {
                return;
            }
        }
    }

    /// Reads the end of a body, and puts the connection back.
    fn end(&self, mut reader: impl Read) -> io::Result<()> {
        if reader.read(&mut [0])? > 0 {
            return Err(io::ErrorKind::InvalidData.into());
        }
        // The connection goes back to the agent.
        drop(reader);
        let connection = self.connection.lock().take();
        if let Some(mut connection) = connection {
            connection.since = Instant::now();
            self.shared.idle.lock().push(connection);
        }
        Ok(())
    }
}

/// The body of a request, for reading.
struct Sent {
    pieces: std::vec::IntoIter<Bytes>,
    now: Cursor<Bytes>,
    len_bytes: usize,
}

impl Sent {
    /// `None` for a request without a body.
    async fn of(mut body: HttpRequestBody, method: &Method) -> Result<Option<Sent>, HttpError> {
        let len_bytes = body.content_length();
        if len_bytes == 0 && !matches!(*method, Method::POST | Method::PUT | Method::PATCH) {
            return Ok(None);
        }
        let mut pieces = Vec::new();
        let next = |context: &mut Context<'_>| Pin::new(&mut body).poll_frame(context);
        let mut frames = futures_util::stream::poll_fn(next);
        while let Some(frame) = frames.next().await {
            // What is no data is a trailer; there are none.
            pieces.extend(frame?.into_data().ok());
        }
        Ok(Some(Sent {
            pieces: pieces.into_iter(),
            now: Cursor::default(),
            len_bytes,
        }))
    }
}

impl Read for Sent {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let len = self.now.read(buffer)?;
            if len > 0 || buffer.is_empty() {
                return Ok(len);
            }
            match self.pieces.next() {
                Some(piece) => self.now = Cursor::new(piece),
                None => return Ok(0),
            }
        }
    }
}

/// An error while a body is read.
fn lost(error: io::Error) -> HttpError {
    broken(ureq::Error::from(error))
}

fn broken(error: ureq::Error) -> HttpError {
    use io::ErrorKind;

    let kind = match &error {
        ureq::Error::Timeout(_) => HttpErrorKind::Timeout,
        ureq::Error::HostNotFound | ureq::Error::ConnectionFailed => HttpErrorKind::Connect,
        ureq::Error::Io(error) => match error.kind() {
            ErrorKind::TimedOut => HttpErrorKind::Timeout,
            ErrorKind::ConnectionRefused => HttpErrorKind::Connect,
            _ => HttpErrorKind::Interrupted,
        },
        _ => HttpErrorKind::Unknown,
    };
    HttpError::new(kind, error)
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::net::TcpListener;
    use std::sync::mpsc::{Receiver, channel};

    use super::*;

    /// Answers each request with so many bytes, of so many that it promises; sends the number of the
    /// connection for each, and 0 when the client closes one.
    fn served(sent: usize, promised: usize) -> (String, Receiver<usize>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/x", listener.local_addr().unwrap());
        let (sender, receiver) = channel();
        std::thread::spawn(move || {
            for (stream, number) in listener.incoming().zip(1..) {
                let (mut stream, sender) = (stream.unwrap(), sender.clone());
                std::thread::spawn(move || {
                    let lines = BufReader::new(stream.try_clone().unwrap()).lines();
                    // A head ends with an empty line.
                    for _ in lines
                        .map_while(Result::ok)
                        .filter(|line: &String| line.is_empty())
                    {
                        let _ = sender.send(number);
                        let head =
                            format!("HTTP/1.1 200 Yes\r\nContent-Length: {promised}\r\n\r\n");
                        let _ = stream.write_all(head.as_bytes());
                        let _ = stream.write_all(&vec![7; sent]);
                    }
                    let _ = sender.send(0);
                });
            }
        });
        (url, receiver)
    }

    fn run<T>(work: impl Future<Output = T>) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        runtime.unwrap().block_on(work)
    }

    fn connections() -> Connections {
        let trust = throughline_web::Trust {
            system: false,
            ..throughline_web::Trust::default()
        };
        Connections::new(throughline_web::agent(trust).build(), Proxies::default())
    }

    fn request(url: &str) -> HttpRequest {
        let mut request = HttpRequest::new(HttpRequestBody::empty());
        *request.uri_mut() = url.parse().unwrap();
        request
    }

    #[test]
    fn a_connection_is_used_again_after_each_reply_and_not_by_two_at_once() {
        // More than is read before somebody takes it.
        const LEN: usize = 3_000_000;
        let (url, asked) = served(LEN, LEN);
        let connections = connections();
        run(async {
            for _ in 0..3 {
                let reply = connections.call(request(&url)).await.unwrap();
                let mut parts = reply.into_body().bytes_stream();
                let mut len = 0;
                // As a reader does that knows the length: it does not wait for the end.
                while len < LEN {
                    len += parts.next().await.unwrap().unwrap().len();
                }
            }
            let first = connections.call(request(&url)).await.unwrap();
            let second = connections.call(request(&url)).await.unwrap();
            for reply in [second, first] {
                assert_eq!(reply.into_body().bytes().await.unwrap().len(), LEN);
            }
        });
        let asked: Vec<_> = asked.iter().take(5).collect();
        assert_eq!(asked, [1, 1, 1, 1, 2]);
    }

    #[test]
    fn who_gives_up_a_reply_closes_its_connection() {
        let (url, asked) = served(100, 300_000);
        let connections = connections();
        run(async {
            let reply = connections.call(request(&url)).await.unwrap();
            drop(reply);
        });
        assert_eq!((asked.recv().unwrap(), asked.recv().unwrap()), (1, 0));
        drop(connections);
    }

    #[test]
    fn a_reply_that_ends_early_is_an_error() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/x", listener.local_addr().unwrap());
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut head = BufReader::new(stream.try_clone().unwrap()).lines();
            while head.next().is_some_and(|line| !line.unwrap().is_empty()) {}
            let answer = b"HTTP/1.1 200 Yes\r\nContent-Length: 9\r\n\r\nshort";
            stream.write_all(answer).unwrap();
        });
        let body = run(async {
            let reply = connections().call(request(&url)).await.unwrap();
            reply.into_body().bytes().await
        });
        assert_eq!(body.unwrap_err().kind(), HttpErrorKind::Interrupted);
    }

    #[test]
    fn a_server_that_is_not_there_is_an_error_of_the_connection() {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/x", taken.local_addr().unwrap());
        drop(taken);
        let error = run(async { connections().call(request(&url)).await.unwrap_err() });
        assert_eq!(error.kind(), HttpErrorKind::Connect);
    }
}
