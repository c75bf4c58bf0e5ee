//! What the servers of tests share: connections on loopback, each served by a thread, and their requests.

use std::io::{self, BufRead, BufReader, Read};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

/// A request of HTTP/1.1.
pub(crate) struct Request {
    pub(crate) method: String,
    /// The path and the query.
    pub(crate) target: String,
    /// Names in lower case.
    headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Request {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut headers = self.headers.iter();
        let found = headers.find(|(it, _)| it == name)?;
        Some(&found.1)
    }

    /// All of them.
    pub(crate) fn headers(&self) -> &[(String, String)] {
        &self.headers
    }

    /// Those whose names begin so.
    pub(crate) fn headers_with(&self, begin: &str) -> Vec<(String, String)> {
        let headers = self.headers.iter();
        let found = headers.filter(|(name, _)| name.starts_with(begin));
        found.cloned().collect()
    }

    /// `None` at the end of the connection.
    fn read(reader: &mut impl BufRead) -> io::Result<Option<Request>> {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        let mut words = line.split(' ').map(str::to_owned);
        let mut request = Request {
            method: words.next().unwrap_or_default(),
            target: words.next().unwrap_or_default(),
            headers: Vec::new(),
            body: Vec::new(),
        };
        loop {
            line.clear();
            reader.read_line(&mut line)?;
            let Some((name, value)) = line.trim_end().split_once(": ") else {
                break;
            };
            let header = (name.to_ascii_lowercase(), value.to_owned());
            request.headers.push(header);
        }
        let len = request.header("content-length");
        let len: u64 = len.and_then(|len| len.parse().ok()).unwrap_or(0);
        reader.take(len).read_to_end(&mut request.body)?;
        match request.body.len() as u64 == len {
            true => Ok(Some(request)),
            false => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}

/// Accepts connections until it is stopped.
pub(crate) struct Listener {
    address: SocketAddr,
    connections: Arc<Connections>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Connections {
    stopping: AtomicBool,
    open: Mutex<Vec<(TcpStream, JoinHandle<()>)>>,
}

impl Listener {
    /// Each request is answered by `answer`, which says whether the connection goes on.
    ///
    /// # Panics
    /// Without a free port.
    pub(crate) fn new(
        answer: impl Fn(Request, &TcpStream) -> io::Result<bool> + Send + Sync + 'static,
    ) -> Listener {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port on loopback");
        let address = listener.local_addr().expect("its address");
        let connections = Arc::<Connections>::default();
        let accepting = Arc::clone(&connections);
        let answer = Arc::new(answer);
        let thread = thread::spawn(move || {
            while let Ok((connection, _)) = listener.accept() {
                if accepting.stopping.load(Ordering::SeqCst) {
                    return;
                }
                let Ok(copy) = connection.try_clone() else {
                    continue;
                };
                let answer = Arc::clone(&answer);
                let worker = thread::spawn(move || {
                    // The client may go away at any time.
                    let _ = serve(&connection, &*answer);
                    let _ = connection.shutdown(Shutdown::Both);
                });
                let open = accepting.open.lock();
                let mut open = open.unwrap_or_else(PoisonError::into_inner);
                open.retain(|(_, worker)| !worker.is_finished());
                open.push((copy, worker));
            }
        });
        Listener {
            address,
            connections,
            thread: Some(thread),
        }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Ends all connections. What `answer` waits for must have ended.
    pub(crate) fn stop(&mut self) {
        self.connections.stopping.store(true, Ordering::SeqCst);
        // Ends the waiting for a connection.
        let _ = TcpStream::connect(self.address);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        let open = self.connections.open.lock();
        let open = std::mem::take(&mut *open.unwrap_or_else(PoisonError::into_inner));
        for (connection, _) in &open {
            let _ = connection.shutdown(Shutdown::Both);
        }
        for (_, worker) in open {
            let _ = worker.join();
        }
    }
}

fn serve(
    connection: &TcpStream,
    answer: &dyn Fn(Request, &TcpStream) -> io::Result<bool>,
) -> io::Result<()> {
    let mut reader = BufReader::new(connection.try_clone()?);
    while let Some(request) = Request::read(&mut reader)? {
        if !answer(request, connection)? {
            break;
        }
    }
    Ok(())
}
