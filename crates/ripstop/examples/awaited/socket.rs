//! The stream of tokio.

use std::net::Ipv4Addr;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::{LARGE, MESSAGES, Pipe, Result};

pub(crate) struct Stream(TcpStream);

pub(crate) async fn open(address: Option<&str>) -> Result<Stream> {
    let stream = match address {
        Some(address) => TcpStream::connect(address).await?,
        None => {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
            println!("{}", listener.local_addr()?);
            listener.accept().await?.0
        }
    };
    stream.set_nodelay(true)?;
    Ok(Stream(stream))
}

impl Pipe for Stream {
    async fn ping(&mut self) -> Result<()> {
        Ok(self.0.write_all(&[1; 8]).await?)
    }

    async fn pong(&mut self) -> Result<()> {
        self.0.read_exact(&mut [0; 8]).await?;
        Ok(())
    }

    async fn pour(&mut self) -> Result<()> {
        let buf = vec![1; LARGE];
        for _ in 0..MESSAGES {
            self.0.write_all(&buf).await?;
        }
        Ok(())
    }

    async fn drain(&mut self) -> Result<()> {
        let mut buf = vec![0; LARGE];
        for _ in 0..MESSAGES {
            self.0.read_exact(&mut buf).await?;
        }
        Ok(())
    }
}
