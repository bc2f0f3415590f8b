//! The console of a guest: what it writes to a file becomes lines with the time.

use std::fs::File;
use std::io::{self, Read as _};
use std::time::Duration;

use serde::Serialize;

/// A line, and when it was complete, in seconds since the guest was started.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Line {
    pub(super) seconds: f64,
    pub(super) text: String,
}

/// The part of the console that has been read.
pub(super) struct Console {
    file: File,
    /// The start of a line whose end has not come.
    open: Vec<u8>,
    pub(super) lines: Vec<Line>,
}

impl Console {
    /// Reads `file` from where it stands, again and again.
    pub(super) fn new(file: File) -> Self {
        Self {
            file,
            open: Vec::new(),
            lines: Vec::new(),
        }
    }

    /// Takes what has been written since; returns the lines that became complete, `now` after the start.
    pub(super) fn read(&mut self, now: Duration) -> io::Result<&[Line]> {
        let before = self.lines.len();
        self.file.read_to_end(&mut self.open)?;
        while let Some(end) = self.open.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.open.drain(..=end).collect();
            self.add(&line, now);
        }
        Ok(&self.lines[before..])
    }

    /// Takes what is left, also a line without an end.
    pub(super) fn finish(&mut self, now: Duration) -> io::Result<&[Line]> {
        let before = self.lines.len();
        self.read(now)?;
        let rest = std::mem::take(&mut self.open);
        if !rest.is_empty() {
            self.add(&rest, now);
        }
        Ok(&self.lines[before..])
    }

    fn add(&mut self, bytes: &[u8], now: Duration) {
        self.lines.push(Line {
            seconds: now.as_secs_f64(),
            text: plain(&String::from_utf8_lossy(bytes)),
        });
    }
}

/// The line without what only moves the cursor of a terminal or colours it.
fn plain(line: &str) -> String {
    let mut text = String::with_capacity(line.len());
    let mut rest = line.chars();
    while let Some(letter) = rest.next() {
        match letter {
            '\u{1b}' => {
                // A control sequence: ESC [ ... letter. Any other one is a letter long.
                if rest.next() == Some('[') {
                    rest.by_ref()
                        .find(|letter| ('\u{40}'..='\u{7e}').contains(letter));
                }
            }
            '\t' => text.push('\t'),
            letter if letter.is_control() => {}
            letter => text.push(letter),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use std::io::{Seek as _, Write as _};

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn console() -> (tempfile::TempDir, File, Console) {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("console");
        let writer = File::create(&path).expect("a file");
        let mut reader = File::open(&path).expect("the same");
        reader.rewind().expect("at its start");
        (folder, writer, Console::new(reader))
    }

    #[test]
    fn lines_have_the_time_of_their_end() {
        let (_folder, mut writer, mut console) = console();
        writer.write_all(b"one\r\ntw").expect("written");
        let texts = |lines: &[Line]| -> Vec<String> {
            lines.iter().map(|line| line.text.clone()).collect()
        };
        assert_eq!(texts(console.read(SECOND).expect("read")), ["one"]);
        assert!(console.read(SECOND).expect("read").is_empty());
        writer.write_all(b"o\nthree").expect("written");
        assert_eq!(texts(console.read(2 * SECOND).expect("read")), ["two"]);
        assert_eq!(texts(console.finish(3 * SECOND).expect("read")), ["three"]);
        let seconds: Vec<f64> = console.lines.iter().map(|line| line.seconds).collect();
        assert_eq!(seconds, [1.0, 2.0, 3.0]);
    }

    #[test]
    fn a_terminal_would_show_the_same() {
        assert_eq!(plain("\u{1b}[1;32mok\u{1b}[0m\ta\u{7}\r\n"), "ok\ta");
        assert_eq!(plain("\u{1b}cclean\u{1b}["), "clean");
        assert_eq!(plain("\u{fffd}"), "\u{fffd}");
    }
}
