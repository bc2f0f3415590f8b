//! Functions that are too long or take too much: candidates for a second function, or for a struct of parameters.

use crate::check::source::SourceFile;

/// The longest function, in lines from `fn` to the closing brace.
pub(super) const LONGEST: usize = 80;

/// The most parameters, without the receiver. What C defines (`extern "C"`) may have more.
pub(super) const PARAMETERS: usize = 6;

/// A function outside tests.
pub(super) struct Function {
    /// Its name, without the type or module it belongs to.
    pub(super) name: String,
    /// The line of `fn`.
    pub(super) line: usize,
    /// Lines from there to the closing brace; 1 without a body.
    pub(super) lines: usize,
    /// Parameters without the receiver; 0 if its interface is C's.
    pub(super) parameters: usize,
}

/// The functions of a file, tests left out.
pub(super) fn functions(source: &SourceFile) -> Vec<Function> {
    let code: Vec<(&str, usize)> = source.code().map(|(_, t)| (&*t.text, t.line)).collect();
    let texts: Vec<&str> = code.iter().map(|(text, _)| *text).collect();
    let mut found = Vec::new();
    for (index, window) in texts.windows(2).enumerate() {
        let [keyword, name] = window else { continue };
        if *keyword != "fn" || *name == "(" {
            continue;
        }
        let Some(open) = parameters_at(&texts, index + 2) else {
            continue;
        };
        let close = closing(&texts, open);
        let line = code[index].1;
        let body = (close..texts.len()).find(|at| matches!(texts[*at], "{" | ";"));
        let last = body
            .filter(|at| texts[*at] == "{")
            .map(|at| code[closing(&texts, at)].1);
        let of_c = matches!(texts[..index], [.., "extern", _]);
        found.push(Function {
            name: (*name).to_owned(),
            line,
            lines: last.map_or(1, |last| last - line + 1),
            parameters: if of_c {
                0
            } else {
                count(&texts[open + 1..close])
            },
        });
    }
    found
}

/// Where the list of parameters opens, behind the generic ones.
fn parameters_at(texts: &[&str], from: usize) -> Option<usize> {
    let mut angles = 0_usize;
    for at in from..texts.len() {
        match texts[at] {
            "<" => angles += 1,
            ">" if texts[at - 1] != "-" => angles = angles.checked_sub(1)?,
            "(" if angles == 0 => return Some(at),
            _ => {}
        }
    }
    None
}

/// Where the group that opens at `open` closes.
fn closing(texts: &[&str], open: usize) -> usize {
    let mut depth = 0_usize;
    for (at, text) in texts.iter().enumerate().skip(open) {
        match *text {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return at;
        }
    }
    texts.len() - 1
}

/// The number of parameters in a list, without the receiver.
fn count(list: &[&str]) -> usize {
    let mut depth = 0_usize;
    let mut parameters: Vec<Vec<&str>> = vec![Vec::new()];
    for (at, text) in list.iter().enumerate() {
        match *text {
            "(" | "[" | "{" | "<" => depth += 1,
            ">" if at > 0 && list[at - 1] == "-" => {}
            ")" | "]" | "}" | ">" => depth = depth.saturating_sub(1),
            "," if depth == 0 => parameters.push(Vec::new()),
            _ => {}
        }
        if let Some(parameter) = parameters.last_mut() {
            parameter.push(text);
        }
    }
    let is_parameter = |p: &&Vec<&str>| {
        let mut words = p.iter().filter(|word| **word != ",").peekable();
        let receiver = p
            .iter()
            .take_while(|word| **word != ":")
            .any(|word| *word == "self");
        words.peek().is_some() && !receiver
    };
    parameters.iter().filter(is_parameter).count()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn parse(text: &str) -> Vec<(String, usize, usize)> {
        let source = SourceFile::parse("core", Path::new("src/a.rs"), text).expect("Rust");
        let functions = functions(&source).into_iter();
        functions.map(|f| (f.name, f.lines, f.parameters)).collect()
    }

    #[test]
    fn lines_reach_to_the_closing_brace() {
        let text = "fn a() {\n if b {\n }\n}\ntrait T {\n fn c(&self);\n}\n#[test]\nfn d() {\n}\n";
        assert_eq!(parse(text), [("a".into(), 4, 0), ("c".into(), 1, 0)]);
    }

    #[test]
    fn parameters_are_counted_and_the_receiver_is_not() {
        let text = "impl A { fn a<F: Fn(u8, u8) -> u8>(&'a mut self, f: F, m: Map<u8, (u8, u8)>, [x, y]: [u8; 2],) {} }";
        assert_eq!(parse(text), [("a".into(), 1, 3)]);
        assert_eq!(
            parse("fn b(f: impl Fn(u8) -> u8, g: fn(u8, u8) -> u8) -> u8 { 1 }"),
            [("b".into(), 1, 2)]
        );
    }

    #[test]
    fn what_c_defines_is_not_counted() {
        assert_eq!(
            parse("unsafe extern \"C\" fn a(b: u8, c: u8) {}"),
            [("a".into(), 1, 0)]
        );
        assert_eq!(parse("type F = unsafe extern \"C\" fn(u8, u8);"), []);
    }
}
