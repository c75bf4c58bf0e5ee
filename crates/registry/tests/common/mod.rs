//! A registry of this test, on loopback, that does what it is told; and images for it.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use sha2::{Digest, Sha256};
use throughline_archive::{
    Error as ArchiveError, Limits, Memory, Merge, Meta, Sources, Tree, write_tar,
};
use throughline_registry::{CredentialFiles, Kind, Options, RegistryImage};

/// A request that was made.
#[derive(Clone, Debug, Default)]
pub(crate) struct Asked {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) headers: HashMap<String, String>,
    pub(crate) body: String,
}

impl Asked {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(String::as_str)
    }
}

/// What is answered.
#[derive(Clone, Default)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) body: Vec<u8>,
    /// The connection ends after so many bytes of the body.
    pub(crate) cut: Option<usize>,
    /// After that the connection stays, and nothing comes.
    pub(crate) is_silent: bool,
    /// The body has no length, and after it come zeros until the client hangs up.
    pub(crate) is_endless: bool,
}

impl Reply {
    pub(crate) fn new(status: u16, body: impl Into<Vec<u8>>) -> Reply {
        Reply {
            status,
            body: body.into(),
            ..Reply::default()
        }
    }

    pub(crate) fn with(mut self, name: &'static str, value: impl Into<String>) -> Reply {
        self.headers.push((name, value.into()));
        self
    }
}

/// A server on loopback. It ends with the process of the test.
#[derive(Clone)]
pub(crate) struct Server {
    pub(crate) host: String,
    asked: Arc<Mutex<Vec<Asked>>>,
}

impl Server {
    pub(crate) fn new(answer: impl Fn(&Asked) -> Reply + Send + Sync + 'static) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let host = listener.local_addr().unwrap().to_string();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (log, answer) = (Arc::clone(&asked), Arc::new(answer));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (log, answer) = (Arc::clone(&log), Arc::clone(&answer));
                // A client that hangs up is no failure of the server.
                std::thread::spawn(move || drop(serve(stream.unwrap(), &log, &*answer)));
            }
        });
        Server { host, asked }
    }

    /// What was asked so far.
    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }

    /// How often a path with this in it was asked for.
    pub(crate) fn count(&self, part: &str) -> usize {
        let asked = self.asked();
        asked
            .iter()
            .filter(|asked| asked.path.contains(part))
            .count()
    }
}

fn serve(
    stream: TcpStream,
    log: &Mutex<Vec<Asked>>,
    answer: &dyn Fn(&Asked) -> Reply,
) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut stream = stream;
    // The start of TLS.
    if reader.fill_buf()?.first() == Some(&0x16) {
        return Ok(());
    }
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let mut words = line.split_whitespace().map(str::to_owned);
    let mut asked = Asked {
        method: words.next().unwrap_or_default(),
        path: words.next().unwrap_or_default(),
        ..Asked::default()
    };
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let Some((name, value)) = line.trim_end().split_once(": ") else {
            break;
        };
        asked
            .headers
            .insert(name.to_ascii_lowercase(), value.to_owned());
    }
    let length = asked
        .header("content-length")
        .map_or(0, |text| text.parse().unwrap());
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    asked.body = String::from_utf8(body).unwrap();
    log.lock().unwrap().push(asked.clone());
    let reply = answer(&asked);
    write!(
        stream,
        "HTTP/1.1 {} X\r\nConnection: close\r\n",
        reply.status
    )?;
    if !reply.is_endless {
        write!(stream, "Content-Length: {}\r\n", reply.body.len())?;
    }
    for (name, value) in &reply.headers {
        write!(stream, "{name}: {value}\r\n")?;
    }
    stream.write_all(b"\r\n")?;
    let end = reply.cut.unwrap_or(reply.body.len()).min(reply.body.len());
    stream.write_all(&reply.body[..end])?;
    if reply.is_silent {
        // Until the client hangs up.
        reader.read_to_end(&mut Vec::new())?;
    }
    if !reply.is_endless {
        return Ok(());
    }
    loop {
        // It fails when the client hangs up.
        stream.write_all(&[0; 4096])?;
    }
}

pub(crate) fn digest(bytes: &[u8]) -> String {
    let sum = Sha256::digest(bytes);
    let hex: String = sum.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}

/// The files of a registry, by what follows the name of an image: `manifests/latest`, `blobs/sha256:…`.
#[derive(Clone, Default)]
pub(crate) struct Content {
    pub(crate) files: HashMap<String, (String, Vec<u8>)>,
    /// Digests of the layers, the lowest first.
    pub(crate) layers: Vec<String>,
    pub(crate) manifest: String,
}

pub(crate) const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const INDEX: &str = "application/vnd.oci.image.index.v1+json";

/// Bytes that no one guesses.
fn noise(length: usize, seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    let next = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..length).map(next).collect()
}

fn layer(files: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let (mut memory, mut sources) = (Memory::new(), Sources::new());
    let contents: Vec<_> = files.iter().map(|(_, bytes)| memory.add(bytes)).collect();
    let id = sources.add(Box::new(memory));
    let mut tree = Tree::new(Limits::default());
    for ((name, _), content) in files.iter().zip(contents) {
        let meta = Meta::new(0o644);
        tree.add_file(name.as_bytes(), &meta, &content.of(id))
            .unwrap();
    }
    let mut out = Vec::new();
    write_tar(&tree, &sources, &mut out).unwrap();
    out
}

impl Content {
    /// An image of three layers, `latest`; and an index for two platforms, `many`.
    pub(crate) fn new() -> Content {
        let mut content = Content::default();
        let layers = [
            layer(&[("a", noise(300_000, 1)), ("gone", noise(10, 2))]),
            layer(&[(".wh.gone", Vec::new()), ("b/c", noise(700_000, 3))]),
            layer(&[("d", noise(20, 4))]),
        ];
        content.manifest = content.image(&layers, "amd64", "latest");
        let other = content.image(&layers[2..], "arm64", "other");
        let entries = [(&content.manifest, "amd64"), (&other, "arm64")].map(|(digest, of)| {
            let size = content.files[&format!("manifests/{digest}")].1.len();
            format!(
                r#"{{"mediaType":"{MANIFEST}","digest":"{digest}","size":{size},
                    "platform":{{"os":"linux","architecture":"{of}"}}}}"#
            )
        });
        let index = format!(
            r#"{{"schemaVersion":2,"manifests":[{}]}}"#,
            entries.join(",")
        );
        content.put("manifests", INDEX, index.into_bytes(), Some("many"));
        content
    }

    fn put(&mut self, kind: &str, of: &str, bytes: Vec<u8>, tag: Option<&str>) -> String {
        let digest = digest(&bytes);
        let names = [Some(&*digest), tag].into_iter().flatten();
        for name in names {
            let file = (of.to_owned(), bytes.clone());
            self.files.insert(format!("{kind}/{name}"), file);
        }
        digest
    }

    fn image(&mut self, layers: &[Vec<u8>], architecture: &str, tag: &str) -> String {
        let config = format!(r#"{{"os":"linux","architecture":"{architecture}"}}"#).into_bytes();
        let size = config.len();
        let config = self.put("blobs", "", config, None);
        let mut entries = Vec::new();
        for layer in layers {
            let digest = self.put("blobs", "", layer.clone(), None);
            entries.push(format!(
                r#"{{"mediaType":"application/vnd.oci.image.layer.v1.tar","digest":"{digest}",
                    "size":{}}}"#,
                layer.len()
            ));
            if tag == "latest" {
                self.layers.push(digest);
            }
        }
        let manifest = format!(
            r#"{{"schemaVersion":2,"config":{{"digest":"{config}","size":{size}}},"layers":[{}]}}"#,
            entries.join(",")
        );
        self.put("manifests", MANIFEST, manifest.into_bytes(), Some(tag))
    }

    /// The answer of a registry without any trouble: all images are called `x`.
    pub(crate) fn answer(&self, asked: &Asked) -> Reply {
        if asked.path == "/v2/" {
            return Reply::new(200, "{}");
        }
        let file = asked
            .path
            .strip_prefix("/v2/x/")
            .and_then(|path| self.files.get(path));
        let Some((of, bytes)) = file else {
            let error = r#"{"errors":[{"code":"MANIFEST_UNKNOWN","message":"manifest unknown"}]}"#;
            return Reply::new(404, error);
        };
        let from = asked.header("range").and_then(|range| {
            let from = range.strip_prefix("bytes=")?.strip_suffix('-')?;
            from.parse::<usize>().ok()
        });
        match from {
            Some(from) => Reply::new(206, &bytes[from..]).with(
                "Content-Range",
                format!("bytes {from}-{}/{}", bytes.len() - 1, bytes.len()),
            ),
            None => Reply::new(200, &bytes[..]).with("Content-Type", of.clone()),
        }
    }
}

/// What is in an image: its tree as an archive, or what kind of error it is.
pub(crate) fn fetch(
    text: &str,
    files: &CredentialFiles,
) -> Result<Vec<u8>, (Option<Kind>, String)> {
    let mut options = Options::new();
    options.credentials(files.clone());
    fetch_with(text, &options, Limits::default())
}

pub(crate) fn fetch_with(
    text: &str,
    options: &Options,
    limits: Limits,
) -> Result<Vec<u8>, (Option<Kind>, String)> {
    let reference = text.parse().unwrap();
    let image = RegistryImage::open(&reference, options)
        .map_err(|error| (Some(error.kind()), error.to_string()))?;
    let mut merge = Merge::new(limits);
    merge.set_platform(throughline_archive::Platform {
        os: "linux".to_owned(),
        architecture: "amd64".to_owned(),
        variant: None,
    });
    merge.add_remote(&image).map_err(|error| {
        let text = error.to_string();
        let kind = match error {
            ArchiveError::Caller(inner) => inner
                .downcast_ref::<throughline_registry::Error>()
                .map(throughline_registry::Error::kind),
            ArchiveError::Damaged { .. } => Some(Kind::Damaged),
            ArchiveError::Limit { .. } => Some(Kind::Limit),
            ArchiveError::Stopped => Some(Kind::Stopped),
            _ => None,
        };
        (kind, text)
    })?;
    let (tree, sources) = merge.finish();
    let mut out = Vec::new();
    write_tar(&tree, &sources, &mut out).unwrap();
    Ok(out)
}

/// The same tree from the layers themselves.
pub(crate) fn expected(content: &Content) -> Vec<u8> {
    let dir = tempfile::tempdir().unwrap();
    let mut merge = Merge::new(Limits::default());
    merge.set_whiteouts(true);
    for (at, layer) in content.layers.iter().enumerate() {
        let path = dir.path().join(at.to_string());
        std::fs::write(&path, &content.files[&format!("blobs/{layer}")].1).unwrap();
        merge.add(&path).unwrap();
    }
    let (tree, sources) = merge.finish();
    let mut out = Vec::new();
    write_tar(&tree, &sources, &mut out).unwrap();
    out
}
