//! The header is what cbindgen makes of the sources.

use std::path::Path;

#[test]
fn the_header_is_that_of_the_sources() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_root_or_default(root);
    let made = cbindgen::Builder::new()
        .with_config(config)
        .with_crate(root)
        .generate()
        .expect("cbindgen reads the sources");
    let mut text = Vec::new();
    made.write(&mut text);
    let made = String::from_utf8(text).expect("the header is text");
    // Of the names that stand for pointers in the sources.
    let made = made
        .replace("const char * ", "const char *")
        .replace("void * ", "void *");
    let path = root.join("include/throughline.h");
    if std::env::var_os("THROUGHLINE_WRITE_HEADER").is_some() {
        std::fs::write(&path, &made).expect("the header is written");
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        kept == made,
        "include/throughline.h is not that of the sources. Make it anew: \
         THROUGHLINE_WRITE_HEADER=1 cargo test -p throughline-capi --test header"
    );
}
