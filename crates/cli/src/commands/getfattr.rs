//! `getfattr`.

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use regex::bytes::Regex;
use serde_json::{Map, Value, json};
use throughline::Node;
use throughline_forms::regular::{Dialect, compile};
use throughline_forms::value::Encoding;

use super::describe::named;
use crate::context::Context;
use crate::pattern::Purpose;
use crate::place::Place;
use crate::problem::{Doing, Failure, Problem};
use crate::walk::{At, Reach, each};

/// Arguments of `getfattr`.
#[derive(Args, Debug)]
pub(crate) struct GetfattrArgs {
    /// Files in images; * and ? match names in images
    #[arg(required = true, value_name = "IMAGE:/PATH")]
    places: Vec<Place>,
    /// Show this attribute, by its full name: user.mime_type
    #[arg(short, long, value_name = "NAME", conflicts_with_all = ["dump", "match"])]
    name: Option<String>,
    /// Show attributes with their values
    #[arg(short, long)]
    dump: bool,
    /// Show attributes whose names match this regular expression, instead of '^user\.'; '-': all
    #[arg(
        short,
        long,
        value_name = "PATTERN",
        default_value = "^user\\.",
        hide_default_value = true,
        allow_hyphen_values = true,
        value_parser = names
    )]
    r#match: Regex,
    /// Encoding of values, instead of text if printable and base64 otherwise
    #[arg(short, long, value_name = "HOW", value_parser = encodings())]
    encoding: Option<Encoding>,
    /// Print only the raw values
    #[arg(long)]
    only_values: bool,
    /// Include the contents of directories
    #[arg(short = 'R', long)]
    recursive: bool,
    /// Show symbolic links themselves, not their targets
    #[arg(short = 'h', long)]
    no_dereference: bool,
    /// Keep names unchanged (always the case; accepted for compatibility)
    #[arg(long, hide = true)]
    absolute_names: bool,
}

/// The encodings by name.
fn encodings() -> impl TypedValueParser<Value = Encoding> {
    PossibleValuesParser::new(["text", "hex", "base64"]).map(|name| match name.as_str() {
        "hex" => Encoding::Hex,
        "base64" => Encoding::Base64,
        _ => Encoding::Text,
    })
}

impl GetfattrArgs {
    fn encoding(&self, value: &[u8]) -> Encoding {
        let fitting = || Encoding::fitting(value);
        self.encoding.unwrap_or_else(fitting)
    }
}

/// A regular expression for attribute names; as in getfattr, `-` matches any.
fn names(pattern: &str) -> Result<Regex, String> {
    let pattern = if pattern == "-" { "" } else { pattern };
    compile(pattern, Dialect::Extended, false, true)
}

/// Shows the attributes of each place.
pub(crate) fn run(args: &GetfattrArgs, context: &mut Context) -> Result<(), Failure> {
    let reach = Reach {
        purpose: Purpose::Read,
        follow: !args.no_dereference,
        recursive: args.recursive,
        links: args.no_dereference,
    };
    let mut found = Vec::new();
    each(context, &args.places, reach, |context, at| {
        show(args, context, at, &mut found)
    })?;
    context.list(found)
}

fn show(
    args: &GetfattrArgs,
    context: &mut Context,
    at: &At<'_>,
    found: &mut Vec<Value>,
) -> Result<(), Failure> {
    let place = at.place;
    let attributes = read(args, place, &at.node()?)?;
    if attributes.is_empty() {
        return Ok(());
    }
    if context.json {
        let mut values = Map::new();
        for (name, value) in &attributes {
            let shown = args.encoding(value);
            values.insert(
                String::from_utf8_lossy(name).into_owned(),
                json!(String::from_utf8_lossy(&shown.show(value))),
            );
        }
        let mut object = named(&place.to_shown());
        object["attributes"] = json!(values);
        found.push(object);
        return Ok(());
    }
    if args.only_values {
        for (_, value) in &attributes {
            context.out.bytes(value)?;
        }
        return Ok(());
    }
    context.out.bytes(b"# file: ")?;
    context.out.name_line(place.to_shown())?;
    for (name, value) in &attributes {
        let mut line = name.clone();
        if args.dump || args.name.is_some() {
            let encoding = args.encoding(value);
            line.push(b'=');
            line.extend(encoding.show(value));
        }
        context.out.name_line(&*String::from_utf8_lossy(&line))?;
    }
    context.out.line("")
}

/// A name and a value.
type Attribute = (Vec<u8>, Vec<u8>);

/// The selected attributes, sorted by name.
fn read(args: &GetfattrArgs, place: &Place, node: &Node) -> Result<Vec<Attribute>, Failure> {
    let cannot = || format!("cannot read the attributes of {place}");
    if let Some(name) = &args.name {
        let value = node.xattrs().get(name).doing(cannot)?;
        return match value {
            Some(value) => Ok(vec![(name.clone().into_bytes(), value)]),
            None => Err(Problem::new("No such attribute").met(format!("{place}: {name}"))),
        };
    }
    let mut names = node.xattrs().names().doing(cannot)?;
    names.retain(|name| args.r#match.is_match(name));
    names.sort_unstable();
    let mut attributes = Vec::new();
    for name in names {
        if let Some(value) = node.xattrs().get(&name).doing(cannot)? {
            attributes.push((name, value));
        }
    }
    Ok(attributes)
}
