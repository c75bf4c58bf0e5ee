//! A server with a planted exploit: code that an attacker would run, in each kind of its threads. In the
//! sandbox, everything that it tries is refused, and the mount serves on. Without it, the same attempts
//! succeed: so the test can fail.
//!
//! The server is this test program, started again. Its exploit is in the device below the volume: it runs in
//! the thread that reads from it, or writes to it.

mod attempts;
#[cfg(target_arch = "x86_64")]
mod inject;
#[cfg(target_arch = "x86_64")]
mod injected;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Write};
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};

use nix::unistd::Pid;
use throughline::{Device, Memory, MkfsOptions, OpenOptions, Volume};
use throughline_fuse::{MountOptions, Session};
use throughline_sandbox::{Policy, enter};

use self::attempts::ATTEMPTS;

/// The environment variable that makes this program the server: the directory of the test.
const SERVER: &str = "THROUGHLINE_PLANTED";
/// The same: it enters the sandbox.
const SANDBOX: &str = "THROUGHLINE_PLANTED_SANDBOX";
const TEST: &str = "a_planted_exploit_is_refused_everything";

/// What is attacked.
#[derive(Clone)]
struct Target {
    dir: PathBuf,
    port: u16,
    pid: Pid,
}

impl Target {
    fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// Tries everything, and says what came of it.
    fn attack(&self, thread: &str) {
        for (name, attempt) in ATTEMPTS {
            let result = match attempt(self) {
                Ok(()) => "done".to_owned(),
                Err(error) => match error.kind() {
                    io::ErrorKind::PermissionDenied => "refused".to_owned(),
                    _ => error.to_string(),
                },
            };
            println!("{thread}\t{name}\t{result}");
        }
        println!("{thread}\tall\tdone");
        let _ = io::stdout().flush();
    }
}

/// A device with the exploit.
#[derive(Clone)]
struct Planted {
    memory: Memory,
    target: Target,
    armed: Arc<AtomicBool>,
    attacked: Arc<Mutex<BTreeSet<String>>>,
}

impl Planted {
    /// Attacks once from each kind of thread.
    fn attack(&self) {
        let thread = std::thread::current().name().unwrap_or("other").to_owned();
        let is_new = self.armed.load(Ordering::SeqCst)
            && self.attacked.lock().unwrap().insert(thread.clone());
        if is_new {
            self.target.attack(&thread);
        }
    }
}

impl Device for Planted {
    fn len_bytes(&self) -> u64 {
        self.memory.len_bytes()
    }

    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.attack();
        self.memory.read_exact_at(buf, offset)
    }

    fn write_all_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.attack();
        self.memory.write_all_at(buf, offset)
    }

    fn flush(&self) -> io::Result<()> {
        self.memory.flush()
    }
}

/// Serves a volume whose device has the exploit, until it is unmounted.
fn serve(dir: &Path) {
    let number = |name: &str| fs::read_to_string(dir.join(name)).unwrap().parse().unwrap();
    let target = Target {
        dir: dir.to_owned(),
        port: u16::try_from(number("port")).unwrap(),
        pid: Pid::from_raw(number("pid")),
    };
    let memory = Memory::zeroed(32 << 20);
    Volume::make_on(memory.clone(), &MkfsOptions::new()).unwrap();
    let before = OpenOptions::new()
        .write(true)
        .open_device(memory.clone())
        .unwrap();
    before.write("/old", vec![7; 2 << 20]).unwrap();
    before.close().unwrap();
    let armed = Arc::new(AtomicBool::new(false));
    let planted = Planted {
        memory,
        target: target.clone(),
        armed: Arc::clone(&armed),
        attacked: Arc::default(),
    };
    let volume = OpenOptions::new().write(true).open_device(planted).unwrap();
    let options = MountOptions::default();
    let session = Session::mount(volume, Path::new("planted"), &dir.join("mnt"), &options).unwrap();
    // A thread that was started before.
    let (go, wait) = mpsc::channel::<()>();
    let early = std::thread::spawn(move || {
        let _ = wait.recv();
        target.attack("early");
    });
    if std::env::var_os(SANDBOX).is_some() {
        let mut policy = Policy::server();
        policy.rings = Some(16);
        let entered = enter(&policy);
        println!("sandbox\tmissing\t{:?}", entered.missing());
    }
    armed.store(true, Ordering::SeqCst);
    drop(go);
    early.join().unwrap();
    println!("serving\tall\tdone");
    let _ = io::stdout().flush();
    session.run().unwrap();
}

/// A process to be attacked.
struct Victim(Child);

impl Drop for Victim {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The mount of the server; unmounted at the end.
struct Unmounted(PathBuf);

impl Drop for Unmounted {
    fn drop(&mut self) {
        let _ = nix::mount::umount2(&self.0, nix::mount::MntFlags::MNT_DETACH);
    }
}

/// The results of each thread's attempts. The mount is used meanwhile.
fn attacked(in_sandbox: bool) -> BTreeMap<(String, String), String> {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    fs::write(path("secret"), "secret").unwrap();
    fs::write(path("victim"), "").unwrap();
    fs::create_dir(path("mnt")).unwrap();
    fs::create_dir(path("place")).unwrap();
    let _socket = UnixListener::bind(path("socket")).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    fs::write(
        path("port"),
        listener.local_addr().unwrap().port().to_string(),
    )
    .unwrap();
    let victim = Victim(Command::new("sleep").arg("600").spawn().unwrap());
    fs::write(path("pid"), victim.0.id().to_string()).unwrap();
    let mut server = Command::new(std::env::current_exe().unwrap());
    server
        .args(["--exact", TEST, "--nocapture"])
        .env(SERVER, dir.path());
    if in_sandbox {
        server.env(SANDBOX, "1");
    }
    let mut server = server.stdout(Stdio::piped()).spawn().unwrap();
    let unmounted = Unmounted(path("mnt"));
    let mut results = BTreeMap::new();
    let mut lines = BufReader::new(server.stdout.take().unwrap()).lines();
    let mut read_until = |thread: &dyn Fn(&str) -> bool| {
        for line in lines.by_ref() {
            let line = line.unwrap();
            let mut words = line.split('\t').map(str::to_owned);
            let (Some(who), Some(what), Some(result)) = (words.next(), words.next(), words.next())
            else {
                continue;
            };
            let is_last = what == "all" && thread(&who);
            results.insert((who, what), result);
            if is_last {
                return;
            }
        }
        panic!("the server has ended");
    };
    read_until(&|who| who == "serving");
    // A thread of the server reads, and then one writes back, and commits.
    let mount = path("mnt");
    assert_eq!(fs::read(mount.join("old")).unwrap(), vec![7; 2 << 20]);
    read_until(&|who| who.starts_with("fuse") || who == TEST);
    fs::write(mount.join("new"), vec![5; 1 << 20]).unwrap();
    File::open(mount.join("new")).unwrap().sync_all().unwrap();
    assert_eq!(fs::read(mount.join("new")).unwrap(), vec![5; 1 << 20]);
    #[cfg(target_arch = "x86_64")]
    injected::assert_refused(
        Pid::from_raw(server.id().cast_signed()),
        victim.0.id(),
        in_sandbox,
    );
    // It serves on.
    assert_eq!(fs::read(mount.join("old")).unwrap(), vec![7; 2 << 20]);
    drop(unmounted);
    while let Some(Ok(line)) = lines.next() {
        let mut words = line.split('\t').map(str::to_owned);
        if let (Some(who), Some(what), Some(result)) = (words.next(), words.next(), words.next()) {
            results.insert((who, what), result);
        }
    }
    assert!(server.wait().unwrap().success());
    results
}

#[test]
fn a_planted_exploit_is_refused_everything() {
    if let Some(dir) = std::env::var_os(SERVER) {
        return serve(Path::new(&dir));
    }
    if !throughline_testkit::tier::as_root() || !Path::new("/dev/fuse").exists() {
        throughline_testkit::missing!("root and /dev/fuse");
        return;
    }
    let names: Vec<&str> = ATTEMPTS.iter().map(|(name, _)| *name).collect();
    for (in_sandbox, expected) in [(false, "done"), (true, "refused")] {
        let results = attacked(in_sandbox);
        if in_sandbox && results[&("sandbox".to_owned(), "missing".to_owned())] != "[]" {
            throughline_testkit::left_out!("this kernel lacks a part of the sandbox: {results:?}");
            return;
        }
        let threads: BTreeSet<&String> = results.keys().map(|(thread, _)| thread).collect();
        println!("in the sandbox: {in_sandbox}; attacked by: {threads:?}");
        for thread in threads
            .iter()
            .filter(|thread| !["sandbox", "serving"].contains(&thread.as_str()))
        {
            for name in &names {
                let result = &results[&((*thread).clone(), (*name).to_owned())];
                assert_eq!(
                    result, expected,
                    "{thread}: {name}, in the sandbox: {in_sandbox}"
                );
            }
        }
        assert!(threads.len() > 3, "{threads:?}");
    }
}
