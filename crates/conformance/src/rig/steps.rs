//! Steps of cases that post, wait and check in one.

use super::{A, B, Rig};
use crate::case::{Step, Stop};
use crate::subject::{Completion, Post, Token};

impl Rig<'_> {
    /// As [`Rig::post`], several in turn.
    ///
    /// # Errors
    ///
    /// As [`Rig::post`].
    #[track_caller]
    pub fn post_all(&self, side: usize, posts: impl IntoIterator<Item = Post>) -> Step<Vec<Token>> {
        let mut tokens = Vec::new();
        for post in posts {
            tokens.push(self.post(side, post)?);
        }
        Ok(tokens)
    }

    /// Posts and waits for the completion.
    ///
    /// # Errors
    ///
    /// As [`Rig::post`] and [`Rig::done`].
    #[track_caller]
    pub fn complete(&self, side: usize, post: Post) -> Step<Completion> {
        let token = self.post(side, post)?;
        self.done(side, token)
    }

    /// Sends from one side to the other and waits for both ends.
    ///
    /// # Errors
    ///
    /// Failed when the bytes do not arrive as they were sent.
    #[track_caller]
    pub fn exchange(&self, from: usize, to: usize, bytes: &[u8]) -> Step<Completion> {
        let recv = self.post(to, Post::recv(bytes.len()))?;
        let send = self.post(from, Post::send(bytes))?;
        self.done(from, send)?;
        let got = self.done(to, recv)?;
        got.carries(bytes)?;
        Ok(got)
    }

    /// Sends from `A` to a receive of `B`, and waits for both: the completion of the receive.
    ///
    /// # Errors
    ///
    /// Failed when either does not succeed.
    #[track_caller]
    pub fn deliver(&self, recv: Post, send: Post) -> Step<Completion> {
        let recv = self.post(B, recv)?;
        let send = self.post(A, send)?;
        self.done(A, send)?;
        self.done(B, recv)
    }

    /// Waits for a receive of `B`, which must get these bytes.
    ///
    /// # Errors
    ///
    /// Failed when it does not succeed, or got others.
    #[track_caller]
    pub fn arrives(&self, recv: Token, bytes: impl AsRef<[u8]>) -> Step<()> {
        self.done(B, recv)?.carries(bytes)
    }

    /// Waits for operations of one side to succeed.
    ///
    /// # Errors
    ///
    /// Failed when one does not.
    #[track_caller]
    pub fn all_done(&self, side: usize, tokens: impl IntoIterator<Item = Token>) -> Step<()> {
        for token in tokens {
            self.done(side, token)?;
        }
        Ok(())
    }
}

impl Completion {
    /// Checks what a receive got.
    ///
    /// # Errors
    ///
    /// Failed when these are not the bytes.
    #[track_caller]
    pub fn carries(&self, bytes: impl AsRef<[u8]>) -> Step<()> {
        let (found, wanted) = (self.bytes(), bytes.as_ref());
        if found == wanted {
            return Ok(());
        }
        let damaged = wanted.iter().zip(&found).position(|(w, f)| w != f);
        let (len, got) = (wanted.len(), found.len());
        Err(Stop::fail(format!(
            "{len} bytes arrived as {got}, first damaged byte: {damaged:?}"
        )))
    }
}
