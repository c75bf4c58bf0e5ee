//! What many machines ask of one base: each runs commands with a URL and a folder of its own, against one
//! server on loopback. Prints requests and bytes for each client, and how long all of them took.
//!
//! ```text
//! cargo build --release -p throughline
//! cargo run --release -p throughline-remote --example clients -- IMAGE CLIENTS COMMAND...
//! ```
//!
//! COMMAND is run by the shell. `$URL` in it is the image, `$DIR` the folder of the client, `$CLIENT` its
//! number. For example:
//!
//! ```text
//! clients base.img 200 'throughline cp --overlay $DIR/o.qcow2 /etc/hostname $URL:/etc/hostname' \
//!     'throughline cat --overlay $DIR/o.qcow2 $URL:/usr/bin/git >/dev/null'
//! ```

use std::collections::BTreeMap;
use std::error::Error;
use std::fs::File;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use throughline_testkit::objects::Server;

/// How many clients work at a time.
const AT_ONCE: usize = 16;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let image = arguments.next().ok_or("an image is needed")?;
    let clients: usize = arguments
        .next()
        .ok_or("the number of clients is needed")?
        .parse()?;
    let commands: Vec<String> = arguments.collect();
    let server = Server::of(File::open(image)?);
    let folder = tempfile::tempdir()?;
    let next = AtomicUsize::new(0);
    let failed = Mutex::new(None);
    let begin = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= clients {
                        return;
                    }
                    let dir = folder.path().join(number.to_string());
                    let url = server.url_of(&number.to_string());
                    let ran = std::fs::create_dir(&dir).and_then(|()| {
                        Command::new("sh")
                            .args(["-ec", &commands.join("\n")])
                            .env("URL", url)
                            .env("DIR", &dir)
                            .env("CLIENT", number.to_string())
                            .env("THROUGHLINE_CACHE", dir.join("cache"))
                            .status()
                    });
                    if !ran.as_ref().is_ok_and(|status| status.success()) {
                        *failed.lock().expect("no panic") =
                            Some(format!("client {number}: {ran:?}"));
                        return;
                    }
                }
            });
        }
    });
    if let Some(failed) = failed.into_inner()? {
        return Err(failed.into());
    }
    let seconds = begin.elapsed().as_secs_f64();
    let mut found = BTreeMap::<String, (u64, u64)>::new();
    for one in server.take_asked() {
        let (requests, bytes) = found.entry(one.path).or_default();
        *requests += 1;
        *bytes += one.range.map_or(0, |range| range.end - range.start);
    }
    let shown = |name: &str, of: fn(&(u64, u64)) -> f64| {
        let mut values: Vec<f64> = found.values().map(of).collect();
        values.sort_by(f64::total_cmp);
        let all: f64 = values.iter().sum();
        let at = |part: usize| values[(values.len() - 1) * part / 100];
        println!(
            "{name}: median {:.1}, 99 % {:.1}, most {:.1}; all clients {all:.0}",
            at(50),
            at(99),
            at(100)
        );
    };
    println!("{clients} clients, {AT_ONCE} at a time, in {seconds:.1} s");
    shown("requests", |it| it.0 as f64);
    shown("MiB", |it| it.1 as f64 / f64::from(1 << 20));
    Ok(())
}
