//! A real server of S3: versitygw.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use throughline_testkit::{missing, program};

use crate::common::throughline;

/// A server of S3, until it is dropped.
pub(crate) struct S3 {
    child: Child,
    endpoint: String,
    root: tempfile::TempDir,
}

impl S3 {
    /// With an empty bucket of the name `bucket`; `None` if versitygw is missing.
    pub(crate) fn new() -> Option<S3> {
        if !program::has(&["versitygw"]) {
            missing!("versitygw (go install github.com/versity/versitygw/cmd/versitygw@latest)");
            return None;
        }
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("bucket")).unwrap();
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = taken.local_addr().unwrap().to_string();
        drop(taken);
        let mut serve = program::command("versitygw");
        serve.args([
            "--access",
            "user",
            "--secret",
            "password-of-tests",
            "--port",
            &address,
        ]);
        serve
            .args(["--region", "us-east-1", "posix"])
            .arg(root.path());
        let child = serve.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let mut server = S3 {
            child: child.unwrap(),
            endpoint: format!("http://{address}"),
            root,
        };
        let end = Instant::now() + Duration::from_secs(60);
        while TcpStream::connect(&address).is_err() {
            let ended = server.child.try_wait().unwrap();
            assert!(
                ended.is_none() && Instant::now() < end,
                "no server: {ended:?}"
            );
            std::thread::sleep(Duration::from_millis(20));
        }
        Some(server)
    }

    /// The file that holds an object.
    pub(crate) fn path(&self, key: &str) -> PathBuf {
        self.root.path().join("bucket").join(key)
    }

    /// A command that finds the server, and has its cache there.
    pub(crate) fn command(&self, cache: &Path, arguments: &[&str]) -> Command {
        let mut command = throughline();
        command.args(arguments).env("THROUGHLINE_CACHE", cache);
        command
            .env("AWS_ACCESS_KEY_ID", "user")
            .env("AWS_SECRET_ACCESS_KEY", "password-of-tests");
        command
            .env("AWS_ENDPOINT_URL", &self.endpoint)
            .env("AWS_ALLOW_HTTP", "true");
        command
            .env("AWS_REGION", "us-east-1")
            .env("THROUGHLINE_OBJECT_TIMEOUT", "5");
        command
    }
}

impl Drop for S3 {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
