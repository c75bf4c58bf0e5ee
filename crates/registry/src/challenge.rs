//! What a server asks for in `WWW-Authenticate` (RFC 9110, section 11).

/// A scheme and its parameters, with names in lower case.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Challenge {
    /// In lower case.
    pub(crate) scheme: String,
    parameters: Vec<(String, String)>,
}

/// Challenges and parameters of one header; more are not looked at.
const PARTS_MAX: usize = 64;

impl Challenge {
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        let mut found = self.parameters.iter().filter(|(known, _)| known == name);
        found.next().map(|(_, value)| value.as_str())
    }

    /// The challenges of a header.
    pub(crate) fn parse(header: &str) -> Vec<Challenge> {
        let mut all: Vec<Challenge> = Vec::new();
        let mut rest = header;
        for _ in 0..PARTS_MAX {
            rest = rest.trim_start_matches([' ', '\t', ',']);
            let end = rest.find([' ', '\t', ',', '=']).unwrap_or(rest.len());
            let (word, after) = rest.split_at(end);
            if word.is_empty() {
                break;
            }
            let value = after.trim_start().strip_prefix('=');
            let Some(value) = value.filter(|_| !all.is_empty()) else {
                all.push(Challenge {
                    scheme: word.to_ascii_lowercase(),
                    parameters: Vec::new(),
                });
                rest = after;
                continue;
            };
            let (value, after) = parameter(value.trim_start());
            if let Some(last) = all.last_mut() {
                last.parameters.push((word.to_ascii_lowercase(), value));
            }
            rest = after;
        }
        all
    }
}

/// A value, quoted or not, and what follows it.
fn parameter(text: &str) -> (String, &str) {
    let Some(quoted) = text.strip_prefix('"') else {
        let end = text.find([' ', '\t', ',']).unwrap_or(text.len());
        return (text[..end].to_owned(), &text[end..]);
    };
    let mut value = String::new();
    let mut letters = quoted.char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '"' => return (value, &quoted[at + 1..]),
            '\\' => value.extend(letters.next().map(|(_, letter)| letter)),
            other => value.push(other),
        }
    }
    (value, "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_of_registries_are_read() {
        let header =
            r#"Bearer realm="https://a.io/token",service="a \"b\"", scope="r:x:pull,push""#;
        let [bearer] = &Challenge::parse(header)[..] else {
            panic!("one challenge");
        };
        assert_eq!(bearer.scheme, "bearer");
        assert_eq!(bearer.get("realm"), Some("https://a.io/token"));
        assert_eq!(bearer.get("service"), Some("a \"b\""));
        assert_eq!(bearer.get("scope"), Some("r:x:pull,push"));
        let both = Challenge::parse("Basic realm=x, Bearer Realm = \"y\" , service=z");
        assert_eq!((both.len(), both[0].get("realm")), (2, Some("x")));
        assert_eq!(
            (both[1].get("realm"), both[1].get("service")),
            (Some("y"), Some("z"))
        );
        for odd in [
            "",
            ",,,",
            "=",
            "\"",
            "Bearer realm=\"",
            "Bearer \\",
            &"a ".repeat(500),
        ] {
            assert!(Challenge::parse(odd).len() <= PARTS_MAX, "{odd}");
        }
    }
}
