//! The points of a source file where a bug can be planted: each is in code that runs, and has another text of
//! the same type.

use std::ops::Range;

use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Attribute, BinOp, Block, Expr, ExprBinary, ExprMethodCall, Lit, Signature, Stmt, UnOp};

/// A point, and the bug that can be planted there.
#[derive(Clone, Debug)]
pub struct Point {
    /// The bytes of the expression or statement.
    pub at: Range<usize>,
    pub kind: &'static str,
    /// What takes its place; empty if a statement is left out.
    pub mutated: String,
    /// The byte at which the outermost function around it begins.
    pub function: usize,
}

/// A file of sources that `#[cfg]` does not remove.
pub struct Parsed {
    pub points: Vec<Point>,
    /// The modules that it declares, in files of their own.
    pub modules: Vec<String>,
}

/// Parses a file.
///
/// # Errors
/// The text is no Rust.
pub fn parse(text: &str) -> syn::Result<Parsed> {
    let mut finder = Finder {
        text,
        function: None,
        points: Vec::new(),
        modules: Vec::new(),
    };
    finder.visit_file(&syn::parse_file(text)?);
    Ok(Parsed {
        points: finder.points,
        modules: finder.modules,
    })
}

/// Calls whose absence, or whose argument, changes no result but only speed or a check.
const HARMLESS: &[&str] = &[
    "drop",
    "prefetch",
    "reserve",
    "reserve_exact",
    "shrink_to_fit",
    "sleep",
    "spin_loop",
    "with_capacity",
    "yield_now",
];

/// Words in the names of calls that stay: without them, a check of the locks' order or the bugs of the
/// power-cut tests answer, and not the tests.
const KEPT: &[&str] = &["assert", "check_rank", "lock", "locked", "plant", "unlock"];

struct Finder<'a> {
    text: &'a str,
    function: Option<usize>,
    points: Vec<Point>,
    modules: Vec<String>,
}

impl Finder<'_> {
    fn text_of(&self, of: &impl Spanned) -> &str {
        &self.text[of.span().byte_range()]
    }

    fn add(&mut self, of: &impl Spanned, kind: &'static str, mutated: String) {
        if let Some(function) = self.function {
            let at = of.span().byte_range();
            self.points.push(Point {
                at,
                kind,
                mutated,
                function,
            });
        }
    }

    fn function(&mut self, attributes: &[Attribute], signature: &Signature, body: &Block) {
        let checks_itself = self.text_of(body).contains("cfg!(");
        if is_conditional(attributes) || signature.constness.is_some() || checks_itself {
            return;
        }
        let outer = self.function;
        self.function = outer.or(Some(signature.span().byte_range().start));
        self.visit_block(body);
        self.function = outer;
    }

    fn binary(&mut self, of: &ExprBinary) {
        let (left, right) = (self.text_of(&of.left), self.text_of(&of.right));
        let other = match of.op {
            BinOp::Lt(_) => "<=",
            BinOp::Le(_) => "<",
            BinOp::Gt(_) => ">=",
            BinOp::Ge(_) => ">",
            BinOp::Eq(_) => "!=",
            BinOp::Ne(_) => "==",
            // `let` can be in a chain of `&&` only.
            BinOp::And(_) if !has_let(&of.left) && !has_let(&of.right) => "||",
            BinOp::Or(_) => "&&",
            // Not `- right` for `+ right`, which panics where the result is below 0.
            BinOp::Add(_) | BinOp::Sub(_) if is_one(&of.right) => {
                return self.add(of, "one off", format!("{left} + 0"));
            }
            BinOp::Add(_) | BinOp::Sub(_) | BinOp::BitAnd(_) | BinOp::BitOr(_) | BinOp::Rem(_) => {
                return self.add(of, "term left out", left.to_owned());
            }
            _ => return,
        };
        self.add(of, "operator", format!("({left}) {other} ({right})"));
    }

    fn method(&mut self, of: &ExprMethodCall) {
        let name = of.method.to_string();
        let receiver = self.text_of(&of.receiver);
        let argument = of.args.first();
        match (name.as_str(), argument) {
            ("div_ceil", Some(by)) => {
                let mutated = format!("({receiver}) / ({})", self.text_of(by));
                self.add(of, "rounding", mutated);
            }
            ("min" | "max" | "any" | "all", _) => {
                let start = of.span().byte_range().start;
                let at = of.method.span().byte_range();
                let end = of.span().byte_range().end;
                let (before, behind) = (&self.text[start..at.start], &self.text[at.end..end]);
                self.add(
                    of,
                    "opposite",
                    format!("{before}{}{behind}", opposite(&name)),
                );
            }
            (_, Some(one)) if is_one(one) && counts(&name) => {
                let mutated = format!("{receiver}.{name}(0)");
                self.add(of, "one off", mutated);
            }
            _ => {}
        }
    }

    /// `min(a, b)`, `u64::max(a, b)`.
    fn least(&mut self, of: &syn::ExprCall) {
        if let (Some(name @ ("min" | "max")), 2) = (called(&of.func).as_deref(), of.args.len()) {
            let [a, b] = [0, 1].map(|index| self.text_of(&of.args[index]));
            let mutated = format!("std::cmp::{}({a}, {b})", opposite(name));
            self.add(of, "opposite", mutated);
        }
    }
}

impl<'ast> Visit<'ast> for Finder<'_> {
    fn visit_item_mod(&mut self, of: &'ast syn::ItemMod) {
        if !is_conditional(&of.attrs) {
            match of.content {
                Some(_) => visit::visit_item_mod(self, of),
                None => self.modules.push(of.ident.to_string()),
            }
        }
    }

    fn visit_item_impl(&mut self, of: &'ast syn::ItemImpl) {
        let of_trait = of
            .trait_
            .as_ref()
            .and_then(|(_, path, _)| path.segments.last());
        let is_text = of_trait.is_some_and(|last| last.ident == "Debug" || last.ident == "Display");
        if !is_text && !is_conditional(&of.attrs) {
            visit::visit_item_impl(self, of);
        }
    }

    fn visit_item_fn(&mut self, of: &'ast syn::ItemFn) {
        self.function(&of.attrs, &of.sig, &of.block);
    }

    fn visit_impl_item_fn(&mut self, of: &'ast syn::ImplItemFn) {
        self.function(&of.attrs, &of.sig, &of.block);
    }

    fn visit_trait_item_fn(&mut self, of: &'ast syn::TraitItemFn) {
        if let Some(body) = &of.default {
            self.function(&of.attrs, &of.sig, body);
        }
    }

    fn visit_stmt(&mut self, of: &'ast Stmt) {
        // An attribute may be a condition, and cannot be kept on a part.
        if self.text_of(of).starts_with("#[") {
            return;
        }
        if let Stmt::Expr(expression, Some(_)) = of
            && let Some(kind) = can_be_left_out(expression)
        {
            self.add(of, kind, String::new());
        }
        visit::visit_stmt(self, of);
    }

    fn visit_expr(&mut self, of: &'ast Expr) {
        match of {
            Expr::Binary(binary) => self.binary(binary),
            Expr::Unary(unary) if matches!(unary.op, UnOp::Not(_)) => {
                let mutated = self.text_of(&unary.expr).to_owned();
                self.add(unary, "negation left out", mutated);
            }
            Expr::MethodCall(call) if HARMLESS.contains(&&*call.method.to_string()) => {
                return self.visit_expr(&call.receiver);
            }
            Expr::MethodCall(call) => self.method(call),
            Expr::Call(call)
                if called(&call.func).is_some_and(|name| HARMLESS.contains(&&*name)) =>
            {
                return;
            }
            Expr::Call(call) => self.least(call),
            _ => {}
        }
        visit::visit_expr(self, of);
    }

    fn visit_expr_repeat(&mut self, of: &'ast syn::ExprRepeat) {
        self.visit_expr(&of.expr);
    }

    fn visit_arm(&mut self, of: &'ast syn::Arm) {
        if !is_conditional(&of.attrs) {
            visit::visit_arm(self, of);
        }
    }

    // What is evaluated by the compiler, or by no one.
    fn visit_attribute(&mut self, _: &'ast Attribute) {}
    fn visit_expr_const(&mut self, _: &'ast syn::ExprConst) {}
    fn visit_generic_argument(&mut self, _: &'ast syn::GenericArgument) {}
    fn visit_impl_item_const(&mut self, _: &'ast syn::ImplItemConst) {}
    fn visit_item_const(&mut self, _: &'ast syn::ItemConst) {}
    fn visit_item_enum(&mut self, _: &'ast syn::ItemEnum) {}
    fn visit_item_static(&mut self, _: &'ast syn::ItemStatic) {}
    fn visit_macro(&mut self, _: &'ast syn::Macro) {}
    fn visit_pat(&mut self, _: &'ast syn::Pat) {}
    fn visit_trait_item_const(&mut self, _: &'ast syn::TraitItemConst) {}
    fn visit_type(&mut self, _: &'ast syn::Type) {}
}

/// Whether something is compiled only for tests, or only for some machines.
fn is_conditional(attributes: &[Attribute]) -> bool {
    let mut names = attributes.iter().map(Attribute::path);
    names.any(|path| path.is_ident("cfg") || path.is_ident("test"))
}

fn has_let(of: &Expr) -> bool {
    match of {
        Expr::Let(_) => true,
        Expr::Binary(chain) => has_let(&chain.left) || has_let(&chain.right),
        _ => false,
    }
}

fn is_one(of: &Expr) -> bool {
    matches!(of, Expr::Lit(literal)
        if matches!(&literal.lit, Lit::Int(number) if number.base10_digits() == "1"))
}

/// Whether a method adds or subtracts its argument.
fn counts(name: &str) -> bool {
    matches!(
        name.split_once('_'),
        Some(("checked" | "saturating" | "wrapping", "add" | "sub"))
    )
}

fn opposite(name: &str) -> &'static str {
    match name {
        "min" => "max",
        "max" => "min",
        "any" => "all",
        _ => "any",
    }
}

/// The name of a function that is called by a path.
fn called(function: &Expr) -> Option<String> {
    let Expr::Path(of) = function else {
        return None;
    };
    Some(of.path.segments.last()?.ident.to_string())
}

/// What it is to leave out a statement; `None` if it stays.
fn can_be_left_out(of: &Expr) -> Option<&'static str> {
    let name = match of {
        Expr::Try(of) => return can_be_left_out(&of.expr),
        Expr::MethodCall(call) => call.method.to_string(),
        Expr::Call(call) => called(&call.func)?,
        // A variable may have no other value.
        Expr::Assign(of) => {
            return matches!(*of.left, Expr::Field(_)).then_some("assignment left out");
        }
        Expr::Binary(of) => return is_assignment(of.op).then_some("assignment left out"),
        _ => return None,
    };
    let stays = HARMLESS.contains(&&*name) || name.split('_').any(|word| KEPT.contains(&word));
    (!stays).then_some("call left out")
}

fn is_assignment(op: BinOp) -> bool {
    matches!(
        op,
        BinOp::AddAssign(_) | BinOp::SubAssign(_) | BinOp::BitAndAssign(_) | BinOp::BitOrAssign(_)
    )
}
