//! What apt has answered, kept on disk: a question costs half a second, and a run asks eight.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

/// Where apt keeps its package lists, and where it is told which to fetch. Answers are good until one of them changes.
const SOURCES: [&str; 3] = ["/var/lib/apt/lists", "/etc/apt", "/etc/apt/sources.list.d"];

/// Answers by question.
#[derive(Default)]
pub(super) struct Answers {
    file: PathBuf,
    kept: Kept,
}

/// The file.
#[derive(Default, Serialize, Deserialize)]
struct Kept {
    /// The last change of the package lists when these answers were given, in nanoseconds since 1970.
    lists: u64,
    answers: BTreeMap<String, String>,
}

impl Answers {
    /// Those in `file` that are still good.
    pub(super) fn load(file: &Path) -> Self {
        Self::of(file, last_change(&SOURCES.map(Path::new)))
    }

    /// Those in `file` that were given when the lists were of this time.
    fn of(file: &Path, lists: u64) -> Self {
        let text = fs::read_to_string(file).unwrap_or_default();
        let kept: Kept = serde_json::from_str(&text).unwrap_or_default();
        let fresh = Kept {
            lists,
            ..Kept::default()
        };
        Self {
            file: file.to_path_buf(),
            kept: if kept.lists == lists { kept } else { fresh },
        }
    }

    /// The answer to `question`; `ask` is for one that is new.
    pub(super) fn get(
        &mut self,
        question: &str,
        ask: impl FnOnce() -> anyhow::Result<String>,
    ) -> anyhow::Result<String> {
        if let Some(answer) = self.kept.answers.get(question) {
            return Ok(answer.clone());
        }
        let answer = ask()?;
        let answers = &mut self.kept.answers;
        answers.insert(question.to_owned(), answer.clone());
        // Another process reads the old file or the new one.
        let new = self.file.with_extension("new");
        fs::write(&new, serde_json::to_string(&self.kept)?)?;
        fs::rename(new, &self.file)?;
        Ok(answer)
    }
}

/// When something directly in one of `folders`, or a folder itself, was last changed.
fn last_change(folders: &[&Path]) -> u64 {
    let time = |path: &Path| fs::metadata(path).and_then(|found| found.modified()).ok();
    let entries = folders
        .iter()
        .filter_map(|folder| fs::read_dir(folder).ok());
    let files = entries.flatten().flatten().map(|entry| entry.path());
    let all = files.chain(folders.iter().map(|folder| folder.to_path_buf()));
    let last = all.filter_map(|path| time(&path)).max();
    let since = last
        .unwrap_or(SystemTime::UNIX_EPOCH)
        .duration_since(UNIX_EPOCH);
    u64::try_from(since.unwrap_or_default().as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_question_is_asked_once_until_the_lists_change() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("answers");
        let ask = |lists, answer: &str| {
            let mut answers = Answers::of(&file, lists);
            let found = answers.get("apt-cache depends dash", || Ok(answer.to_owned()));
            found.expect("an answer")
        };
        assert_eq!(ask(1, "old"), "old");
        assert_eq!(ask(1, "new"), "old");
        assert_eq!(ask(2, "new"), "new");
        fs::write(&file, "no JSON").expect("written");
        assert_eq!(ask(2, "newest"), "newest");
    }

    #[test]
    fn what_fails_is_asked_again() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut answers = Answers::of(&folder.path().join("answers"), 1);
        assert!(answers.get("q", || anyhow::bail!("no network")).is_err());
        assert_eq!(answers.get("q", || Ok("a".to_owned())).expect("one"), "a");
    }

    #[test]
    fn a_changed_file_is_seen() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("Packages");
        fs::write(&file, "").expect("written");
        let before = last_change(&[folder.path()]);
        let later = SystemTime::now() + Duration::from_secs(60);
        let opened = fs::File::options().write(true).open(&file).expect("there");
        opened.set_modified(later).expect("set");
        assert!(last_change(&[folder.path()]) > before && before > 0);
    }
}
