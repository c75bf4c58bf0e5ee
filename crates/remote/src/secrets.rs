//! URLs with their secrets, of which names are given without: they are in the environment or in a file, so
//! that no list of processes shows them.
//!
//! They are read whenever an object is opened, so a signature that was renewed in the file counts then. What
//! is wrong with them is said without their text.

use std::env;
use std::fs::File;
use std::io::Read;
use std::path::PathBuf;

use crate::failure::Failure;
use crate::name::ObjectName;

/// Environment variable with whole URLs, separated by white space.
const URLS: &str = "THROUGHLINE_URLS";
/// Environment variable with the path of a file of whole URLs, one a line.
const FILE: &str = "THROUGHLINE_URLS_FILE";
/// The file is not longer.
const FILE_MAX: u64 = 1 << 20;

/// Whether there are URLs with secrets for this process.
pub fn has_secrets() -> bool {
    let is_set = |name: &str| env::var_os(name).is_some_and(|value| !value.is_empty());
    is_set(URLS) || is_set(FILE)
}

/// The name with the secrets that the environment has for it, or as it is.
///
/// # Errors
/// [`Failure::Refused`] if the variables or the file are not in order.
pub(crate) fn whole(name: &ObjectName) -> Result<ObjectName, Failure> {
    if name.has_secret() {
        return Ok(name.clone());
    }
    let shown = name.to_string();
    let is_it = |whole: &ObjectName| whole.has_secret() && whole.to_string() == shown;
    let known = urls()?;
    Ok(known
        .into_iter()
        .find(is_it)
        .unwrap_or_else(|| name.clone()))
}

/// All of them, those of the variable first.
fn urls() -> Result<Vec<ObjectName>, Failure> {
    let mut all = Vec::new();
    if let Some(text) = env::var_os(URLS) {
        let text = text
            .into_string()
            .map_err(|_| wrong(URLS, "it is not UTF-8"))?;
        for (word, number) in text.split_whitespace().zip(1..) {
            let url = word.parse();
            all.push(
                url.map_err(|_| wrong(URLS, format!("word {number} is no URL of an object")))?,
            );
        }
    }
    if let Some(path) = env::var_os(FILE).filter(|path| !path.is_empty()) {
        let path = PathBuf::from(path);
        let failed = |why: String| wrong(FILE, format!("{}: {why}", path.display()));
        let text = read(&path).map_err(|error| failed(error.to_string()))?;
        all.extend(lines(&text).map_err(failed)?);
    }
    Ok(all)
}

fn read(path: &std::path::Path) -> std::io::Result<String> {
    let mut text = String::new();
    File::open(path)?
        .take(FILE_MAX + 1)
        .read_to_string(&mut text)?;
    match text.len() as u64 > FILE_MAX {
        true => Err(std::io::Error::other(format!("more than {FILE_MAX} bytes"))),
        false => Ok(text),
    }
}

/// The URLs of a file. Empty lines and those with `#` at their beginning are none.
fn lines(text: &str) -> Result<Vec<ObjectName>, String> {
    let lines = text.lines().map(str::trim).zip(1..);
    let urls = lines.filter(|(line, _)| !line.is_empty() && !line.starts_with('#'));
    let url = |(line, number): (&str, u32)| {
        let url = line.parse::<ObjectName>();
        url.map_err(|_| format!("line {number} is no URL of an object"))
    };
    urls.map(url).collect()
}

fn wrong(name: &str, why: impl std::fmt::Display) -> Failure {
    Failure::Refused(format!("{name}: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_one_url_a_line() {
        let all = lines("# of tests\n\n https://u:p@h/x \ns3://b/k?a=1\n").unwrap();
        let whole: Vec<&str> = all.iter().map(|name| name.url().as_str()).collect();
        assert_eq!(whole, ["https://u:p@h/x", "s3://b/k?a=1"]);
        let error = lines("https://h/x\nhidden-word\n").unwrap_err();
        assert_eq!(error, "line 2 is no URL of an object");
    }
}
