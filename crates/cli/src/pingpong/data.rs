//! The bytes of checked messages: the alphabet, starting seven letters later each time.

use anyhow::{Result, ensure};

const ALPHABET: &[u8; 62] = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
const STEP: u32 = 7;

/// Counts the checked messages of one direction.
#[derive(Debug, Default)]
pub(super) struct Pattern {
    messages: u32,
}

impl Pattern {
    fn letters(&mut self) -> impl Iterator<Item = u8> {
        let start = self.messages.wrapping_mul(STEP) as usize % ALPHABET.len();
        self.messages = self.messages.wrapping_add(1);
        ALPHABET.iter().copied().cycle().skip(start)
    }

    /// Writes the next message.
    pub(super) fn fill(&mut self, message: &mut [u8]) {
        for (byte, letter) in message.iter_mut().zip(self.letters()) {
            *byte = letter;
        }
    }

    /// Compares the next message.
    ///
    /// # Errors
    /// With the place of the first difference.
    pub(super) fn check(&mut self, message: &[u8]) -> Result<()> {
        let wrong = message
            .iter()
            .zip(self.letters())
            .position(|(byte, letter)| *byte != letter);
        ensure!(
            wrong.is_none(),
            "Error at iteration={} size={} byte={}",
            self.messages,
            message.len(),
            wrong.unwrap_or_default()
        );
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_message_starts_seven_letters_later() {
        let (mut fill, mut check) = (Pattern::default(), Pattern::default());
        let mut message = [0; 4];
        for expected in [b"0123", b"789a", b"efgh"] {
            fill.fill(&mut message);
            assert_eq!(&message, expected);
            check.check(&message).expect("the same");
        }
        let error = check.check(&message).expect_err("an old message");
        assert_eq!(error.to_string(), "Error at iteration=4 size=4 byte=0");
    }
}
