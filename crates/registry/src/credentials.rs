//! Credentials, as docker, podman and skopeo keep them (docker's `config.json`; `containers-auth.json(5)`).

use std::collections::HashMap;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;

use crate::error::{Error, Kind, Result, shown};
use crate::reference::{DOCKER_IO, Reference};

/// A file of credentials is not larger, nor is the answer of a program.
const FILE_MAX: u64 = 4 << 20;
/// As long as a program may take: it may ask the user.
const HELPER: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(20);
/// What docker calls its own registry in its files.
const DOCKER_IO_KEY: &str = "https://index.docker.io/v1/";

/// The files with credentials, in the order in which they are searched.
#[derive(Clone, Debug, Default)]
pub struct CredentialFiles(Vec<PathBuf>);

/// What a registry is told.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Credentials {
    Password { user: String, secret: String },
    IdentityToken(String),
}

impl Credentials {
    /// The header for a user and a password.
    pub(crate) fn basic(&self) -> Option<String> {
        match self {
            Credentials::Password { user, secret } => {
                let both = STANDARD.encode(format!("{user}:{secret}"));
                Some(format!("Basic {both}"))
            }
            Credentials::IdentityToken(_) => None,
        }
    }
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Document {
    #[serde(default)]
    auths: HashMap<String, Entry>,
    #[serde(default)]
    cred_helpers: HashMap<String, String>,
    #[serde(default)]
    creds_store: String,
}

#[derive(Default, Deserialize)]
struct Entry {
    #[serde(default)]
    auth: String,
    #[serde(default)]
    identitytoken: String,
}

/// What a program answers.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Answer {
    username: String,
    secret: String,
}

impl CredentialFiles {
    /// Those files.
    pub fn new(files: impl IntoIterator<Item = PathBuf>) -> CredentialFiles {
        CredentialFiles(files.into_iter().collect())
    }

    /// The user's: `REGISTRY_AUTH_FILE` alone if that is set; else `containers/auth.json` in
    /// `XDG_RUNTIME_DIR` and in `XDG_CONFIG_HOME` or `~/.config`, and `config.json` in `DOCKER_CONFIG` or
    /// `~/.docker`.
    pub fn of_user() -> CredentialFiles {
        let variable = |name: &str| {
            let value = std::env::var_os(name).filter(|value| !value.is_empty());
            value.map(PathBuf::from)
        };
        if let Some(file) = variable("REGISTRY_AUTH_FILE") {
            return CredentialFiles(vec![file]);
        }
        let home = |below: &str| variable("HOME").map(|home| home.join(below));
        let runtime = variable("XDG_RUNTIME_DIR");
        let config = variable("XDG_CONFIG_HOME").or_else(|| home(".config"));
        let docker = variable("DOCKER_CONFIG").or_else(|| home(".docker"));
        let containers = [runtime, config].into_iter().flatten();
        let files = containers.map(|directory| directory.join("containers/auth.json"));
        CredentialFiles(
            files
                .chain(docker.map(|directory| directory.join("config.json")))
                .collect(),
        )
    }

    /// The credentials for an image, if there are any.
    pub(crate) fn find(&self, reference: &Reference) -> Result<Option<Credentials>> {
        for file in &self.0 {
            let Some(document) = read(file)? else {
                continue;
            };
            if let Some(found) = in_file(&document, file, reference)? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }
}

fn wrong(file: &Path, why: impl std::fmt::Display) -> Error {
    Error::new(Kind::Credentials, format!("{}: {why}", file.display()))
}

fn read(file: &Path) -> Result<Option<Document>> {
    let open = match std::fs::File::open(file) {
        Ok(open) => open,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(wrong(file, error)),
    };
    let mut text = Vec::new();
    let bytes = open.take(FILE_MAX + 1).read_to_end(&mut text);
    bytes.map_err(|error| wrong(file, error))?;
    if text.len() as u64 > FILE_MAX {
        return Err(wrong(file, format_args!("more than {FILE_MAX} bytes")));
    }
    if text.trim_ascii().is_empty() {
        return Ok(None);
    }
    // The message of the parser says where, and not what is there.
    let parsed = serde_json::from_slice(&text);
    parsed.map(Some).map_err(|error| {
        let (line, column) = (error.line(), error.column());
        wrong(
            file,
            format_args!("is not in order at line {line}, column {column}"),
        )
    })
}

fn in_file(document: &Document, file: &Path, reference: &Reference) -> Result<Option<Credentials>> {
    let keys = keys(reference);
    let host = reference.host();
    let helper = document.cred_helpers.get(host).or_else(|| {
        let hosts = document.cred_helpers.iter();
        let mut found = hosts.filter(|(key, _)| plain(key) == host);
        found.next().map(|(_, helper)| helper)
    });
    let helper = helper.filter(|name| !name.is_empty()).or_else(|| {
        let store = Some(&document.creds_store);
        store.filter(|name| !name.is_empty())
    });
    if let Some(helper) = helper
        && let Some(found) = of_helper(helper, file, host)?
    {
        return Ok(Some(found));
    }
    let entry = keys.iter().find_map(|wanted| {
        let mut entries = document.auths.iter();
        let found = entries.find(|(key, _)| plain(key) == *wanted);
        found.map(|(_, entry)| entry)
    });
    let Some(entry) = entry else {
        return Ok(None);
    };
    if !entry.identitytoken.is_empty() {
        let token = entry.identitytoken.clone();
        return Ok(Some(Credentials::IdentityToken(token)));
    }
    if entry.auth.is_empty() {
        return Ok(None);
    }
    let both = STANDARD.decode(entry.auth.trim()).ok();
    let both = both.and_then(|bytes| String::from_utf8(bytes).ok());
    let both = both.as_deref().and_then(|text| text.split_once(':'));
    let (user, secret) = both.ok_or_else(|| {
        wrong(
            file,
            format_args!("'auth' of {host} is not a user and a password in base64"),
        )
    })?;
    Ok(Some(Credentials::Password {
        user: user.to_owned(),
        // Docker once wrote zeros behind it.
        secret: secret.trim_end_matches('\0').to_owned(),
    }))
}

/// What entries for an image are called, the most specific first.
fn keys(reference: &Reference) -> Vec<String> {
    let mut path = format!("{}/{}", reference.host(), reference.name());
    let mut keys = Vec::new();
    loop {
        keys.push(path.clone());
        match path.rfind('/') {
            Some(slash) => path.truncate(slash),
            None => return keys,
        }
    }
}

/// A key without the scheme and the path that docker writes around a host.
fn plain(key: &str) -> &str {
    let key = key.strip_prefix("https://").unwrap_or(key);
    let key = key.strip_prefix("http://").unwrap_or(key);
    let key = key.trim_end_matches('/');
    let key = key.strip_suffix("/v1").unwrap_or(key);
    let key = key.strip_suffix("/v2").unwrap_or(key);
    match key {
        "index.docker.io" | "registry-1.docker.io" => DOCKER_IO,
        other => other,
    }
}

/// Asks a program that keeps credentials, by docker's protocol.
fn of_helper(name: &str, file: &Path, host: &str) -> Result<Option<Credentials>> {
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    if !name.bytes().all(is_name) {
        return Err(wrong(file, "a credential helper has no such name"));
    }
    let program = format!("docker-credential-{name}");
    let failed = |why: &str| wrong(file, format_args!("{program} for {host}: {why}"));
    let key = match host {
        DOCKER_IO => DOCKER_IO_KEY,
        host => host,
    };
    let (is_success, said) = run(&program, key).map_err(|why| failed(&why))?;
    if !is_success {
        let text = String::from_utf8_lossy(&said);
        return match text.contains("credentials not found") {
            true => Ok(None),
            false => Err(failed(&shown(&text))),
        };
    }
    let answer: Answer = serde_json::from_slice(&said)
        .map_err(|_| failed("it answered with something that is no credentials"))?;
    Ok(Some(match &*answer.username {
        "<token>" => Credentials::IdentityToken(answer.secret),
        _ => Credentials::Password {
            user: answer.username,
            secret: answer.secret,
        },
    }))
}

/// Whether the program succeeded, and what it said.
fn run(program: &str, input: &str) -> std::result::Result<(bool, Vec<u8>), String> {
    let started = Command::new(program)
        .arg("get")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn();
    let mut child = started.map_err(|error| format!("cannot be run: {error}"))?;
    if let Some(mut stdin) = child.stdin.take() {
        // A program that does not read it says so by its exit.
        let _ = writeln!(stdin, "{input}");
    }
    let stdout = child.stdout.take();
    let read = move || {
        let mut said = Vec::new();
        if let Some(stdout) = stdout {
            let _ = stdout.take(FILE_MAX).read_to_end(&mut said);
        }
        said
    };
    let reader = match std::thread::Builder::new().spawn(read) {
        Ok(reader) => reader,
        Err(error) => {
            let _ = child.kill();
            let _ = child.wait();
            return Err(format!("cannot be read: {error}"));
        }
    };
    let end = Instant::now() + HELPER;
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) if Instant::now() < end => std::thread::sleep(LOOK),
            _ => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(format!("gave no answer in {} s", HELPER.as_secs()));
            }
        }
    };
    let said = reader.join().unwrap_or_default();
    Ok((status.success(), said))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(text: &str, image: &str) -> Result<Option<Credentials>> {
        let dir = tempfile::tempdir().expect("a folder");
        let file = dir.path().join("config.json");
        std::fs::write(&file, text).expect("it is written");
        let none = dir.path().join("none");
        CredentialFiles::new([none, file]).find(&image.parse().expect("a name"))
    }

    fn user(found: Result<Option<Credentials>>) -> Option<String> {
        match found.expect("it is in order") {
            Some(Credentials::Password { user, secret }) => Some(format!("{user}:{secret}")),
            Some(Credentials::IdentityToken(token)) => Some(format!("token {token}")),
            None => None,
        }
    }

    #[test]
    fn the_most_specific_entry_counts() {
        let text = r#"{"auths": {
            "q.io": {"auth": "YTpi"}, "q.io/x": {"auth": "YzpkOmU="}, "q.io/x/y/z": {"auth": "eDp4"},
            "https://index.docker.io/v1/": {"auth": "aDpp"}, "http://l:5000/": {"auth": "aDpqAAA="},
            "t.io": {"auth": "", "identitytoken": "abc"}, "empty.io": {}
        }, "other": 1}"#;
        let user = |image: &str| user(find(text, image));
        assert_eq!(user("q.io/y").as_deref(), Some("a:b"));
        assert_eq!(user("q.io/x/y").as_deref(), Some("c:d:e"));
        assert_eq!(user("q.io/x/y/z:1").as_deref(), Some("x:x"));
        assert_eq!(user("debian").as_deref(), Some("h:i"));
        assert_eq!(user("l:5000/a").as_deref(), Some("h:j"));
        assert_eq!(user("t.io/a").as_deref(), Some("token abc"));
        assert_eq!(user("empty.io/a"), None);
        assert_eq!(user("q.io.evil/x"), None);
    }

    #[test]
    fn what_is_not_in_order_is_said_without_secrets() {
        for (text, says) in [
            ("{", "line 1"),
            (r#"{"auths": {"q.io": {"auth": "secret"}}}"#, "base64"),
            (r#"{"auths": {"q.io": {"auth": 17}}}"#, "line 1"),
            (r#"{"credHelpers": {"q.io": "../x"}}"#, "no such name"),
            (
                r#"{"credsStore": "not-there"}"#,
                "docker-credential-not-there",
            ),
        ] {
            let error = find(text, "q.io/a").err().expect(text);
            assert_eq!(error.kind(), Kind::Credentials);
            let said = error.to_string();
            assert!(said.contains(says) && !said.contains("secret"), "{said}");
        }
        assert!(find(" \n", "q.io/a").expect("an empty file").is_none());
    }
}
