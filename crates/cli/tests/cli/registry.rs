//! `pack docker://…`, with Debian's registry on loopback, filled by skopeo: the same image as from the
//! archive that skopeo makes of it. Registries that misbehave are in the tests of the crate `registry`.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use throughline_testkit::program;

use crate::common::{assert_clean, fails, throughline};
use crate::sources::{CONTAINER, Place, has};

/// `user` and `word`, for the registry; and the same in base64, for its clients.
const PASSWORDS: &str = "user:$2y$05$abcdefghijklmnopqrstuuQDoL5Sa/TtfS/XN4AY/jgq.HBbO1BTu\n";
const BOTH: &str = "dXNlcjp3b3Jk";
/// An authority of its own, and a certificate of it for loopback.
const CERTIFICATES: &str = r"
cat > req.cnf <<'END'
[req]
distinguished_name = dn
[dn]
[ca]
basicConstraints = critical, CA:TRUE
[leaf]
basicConstraints = critical, CA:FALSE
subjectAltName = IP:127.0.0.1
END
new='openssl req -config req.cnf -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes'
$new -x509 -extensions ca -keyout ca.key -out ca.pem -subj /CN=test -days 2 2>&1
$new -keyout key.pem -out leaf.csr -subj /CN=leaf 2>&1
openssl x509 -req -in leaf.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile req.cnf \
  -extensions leaf -out leaf.pem 2>&1
";

/// A registry, until it is dropped.
struct Registry {
    child: Child,
    host: String,
}

impl Registry {
    /// Serves what is in `store`, with TLS and passwords if `is_closed`.
    fn new(place: &Place, is_closed: bool) -> Registry {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let host = taken.local_addr().unwrap().to_string();
        drop(taken);
        let (store, passwords) = (place.text("store"), place.text("passwords"));
        let closed = format!(
            "  tls: {{certificate: {}, key: {}}}\nauth: {{htpasswd: {{realm: test, path: {passwords}}}}}\n",
            place.text("leaf.pem"),
            place.text("key.pem")
        );
        let config = format!(
            "version: 0.1\nlog: {{level: error}}\nstorage: {{filesystem: {{rootdirectory: {store}}}}}\n\
             http:\n  addr: {host}\n{}",
            if is_closed { &closed } else { "" }
        );
        fs::write(&passwords, PASSWORDS).unwrap();
        fs::write(place.path("config.yml"), config).unwrap();
        let mut serve = program::command("docker-registry");
        serve.arg("serve").arg(place.path("config.yml"));
        let child = serve.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let mut registry = Registry {
            child: child.unwrap(),
            host,
        };
        let end = Instant::now() + Duration::from_secs(60);
        while TcpStream::connect(&registry.host).is_err() {
            let ended = registry.child.try_wait().unwrap();
            assert!(
                ended.is_none() && Instant::now() < end,
                "no registry: {ended:?}"
            );
            std::thread::sleep(Duration::from_millis(20));
        }
        registry
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        // It ends with the test, however that ends.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// `pack` without the credentials of who runs the test.
fn pack(place: &Place) -> Command {
    let mut pack = throughline();
    for name in [
        "REGISTRY_AUTH_FILE",
        "XDG_RUNTIME_DIR",
        "XDG_CONFIG_HOME",
        "DOCKER_CONFIG",
    ] {
        pack.env_remove(name);
    }
    pack.env("HOME", place.path("home")).arg("pack");
    pack
}

fn errors(ran: &Output) -> String {
    String::from_utf8_lossy(&ran.stderr).into_owned()
}

#[track_caller]
fn is_refused(ran: &Output, says: &[&str]) {
    let errors = errors(ran);
    assert_eq!(ran.status.code(), Some(1), "{errors}");
    for says in says {
        assert!(errors.contains(says), "no {says:?} in {errors}");
    }
}

#[test]
fn an_image_of_a_registry_is_that_of_its_archive() {
    if !has(&["docker-registry", "skopeo", "umoci"]) {
        return;
    }
    let place = Place::new();
    place.shell(CONTAINER);
    let registry = Registry::new(&place, false);
    let name = |tag: &str| format!("docker://{}/some/name:{tag}", registry.host);
    let script = format!(
        "push() {{ skopeo --insecure-policy copy -q --dest-tls-verify=false \"$@\"; }}
         push oci:img:a {0}/some/name:oci; push --format v2s2 oci:img:a {0}/some/name:docker
         push --dest-compress-format zstd --format oci oci:img:a {0}/some/name:zstd
         skopeo inspect --tls-verify=false --format '{{{{.Digest}}}}' {0}/some/name:oci > digest",
        format_args!("docker://{}", registry.host)
    );
    place.shell(&script);
    let digest = fs::read_to_string(place.path("digest")).unwrap();
    let by_digest = format!("docker://{}/some/name@{}", registry.host, digest.trim());
    place.shell(&format!(
        "skopeo --insecure-policy copy -q --src-tls-verify=false {by_digest} oci-archive:again.tar:a"
    ));
    let expected = place.pack(&["oci.tar"]);
    assert!(place.pack(&["again.tar"]) == expected);
    for source in [&name("oci"), &name("docker"), &name("zstd"), &by_digest] {
        assert!(place.pack(&[source]) == expected, "{source}");
    }
    // With something over it, as any source; and as the source of mkfs.
    place.shell("mkdir over; echo more > over/more");
    let both = place.pack(&[&name("oci"), "over"]);
    assert!(both == place.pack(&["oci.tar", "over"]));
    let out = place.text("out");
    crate::common::ok(["mkfs", "-q", "-d", &name("oci"), &out, "8M"]);
    assert_clean(Path::new(&out));
    let ran = pack(&place)
        .args([&name("none"), "-o", &place.text("none")])
        .output()
        .unwrap();
    is_refused(
        &ran,
        &["no such image", "skopeo list-tags docker://127.0.0.1"],
    );
    assert!(!place.path("none").exists());
}

#[test]
fn a_registry_with_tls_and_passwords() {
    if !has(&["docker-registry", "skopeo", "umoci", "openssl"]) {
        return;
    }
    let place = Place::new();
    place.shell(CONTAINER);
    place.shell(CERTIFICATES);
    let registry = Registry::new(&place, true);
    let name = format!("docker://{}/x:a", registry.host);
    place.shell(&format!(
        "skopeo --insecure-policy copy -q --dest-tls-verify=false --dest-creds user:word oci:img:a {name}"
    ));
    let expected = place.pack(&["oci.tar"]);
    let image = place.text("image");
    let words = [&*name, "-F", "-q", "-o", &image];
    let trusting = || {
        let mut pack = pack(&place);
        pack.env("SSL_CERT_FILE", place.path("ca.pem")).args(words);
        pack
    };
    let ran = pack(&place).args(words).output().unwrap();
    is_refused(
        &ran,
        &["is not trusted", "SSL_CERT_FILE", "--tls-verify=false"],
    );
    let ran = trusting().output().unwrap();
    is_refused(&ran, &["and there are none", "skopeo login 127.0.0.1"]);
    let auths = format!(
        r#"{{"auths": {{"{}": {{"auth": "{BOTH}"}}}}}}"#,
        registry.host
    );
    fs::write(place.path("auth.json"), auths).unwrap();
    let helper = r#"{"credsStore": "of-test"}"#;
    place.shell(
        r#"mkdir docker tools
           printf '#!/bin/sh\nread host; echo "{\\"Username\\":\\"user\\",\\"Secret\\":\\"word\\"}"\n' \
             > tools/docker-credential-of-test; chmod +x tools/docker-credential-of-test"#,
    );
    fs::write(place.path("docker/config.json"), helper).unwrap();
    let path = format!("{}:{}", place.text("tools"), program::search_path());
    let mut with_file = trusting();
    with_file.env("REGISTRY_AUTH_FILE", place.path("auth.json"));
    let mut with_helper = trusting();
    with_helper
        .env("DOCKER_CONFIG", place.path("docker"))
        .env("PATH", path);
    let mut unverified = pack(&place);
    unverified.env("REGISTRY_AUTH_FILE", place.path("auth.json"));
    unverified.args(words).arg("--tls-verify=false");
    for mut pack in [with_file, with_helper, unverified] {
        let _ = fs::remove_file(&image);
        let ran = pack.output().unwrap();
        assert!(ran.status.success(), "{}", errors(&ran));
        assert!(fs::read(&image).unwrap() == expected);
    }
}

#[test]
fn names_that_are_none_are_usage_errors() {
    let place = Place::new();
    let out = place.text("out");
    for name in [
        "docker://",
        "docker://UPPER",
        "docker://a:b:c",
        "docker://a@sha256:1",
    ] {
        fails(["pack", name, "-o", &out], 2, "is no name of an image");
    }
    // Nothing listens there.
    let ran = pack(&place)
        .args(["docker://127.0.0.1:1/x", "-o", &out])
        .output()
        .unwrap();
    is_refused(
        &ran,
        &["cannot read 'docker://127.0.0.1:1/x'", "https_proxy"],
    );
    assert!(!Path::new(&out).exists());
}
