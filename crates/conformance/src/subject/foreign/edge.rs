use ripstop_core::{Address, Info};
use ripstop_foreign as lib;
use ripstop_types::{Errno, FiAddr, Flags, WaitObj};

use super::table::Object;
use super::{Foreign, table, to_lib};
use crate::subject::{CEdge, Error, Fid, Result};

impl<M: lib::Threading> CEdge for Foreign<M> {
    fn name_into(&self, fid: Fid, len: usize) -> (Result<()>, usize) {
        let (answer, need) = match self.table.get(fid) {
            Ok(Object::Pep(pep)) => pep.getname_into(len),
            Ok(Object::Ep(ep)) => table::read(&ep).getname_into(len),
            Ok(_) => return (Err(Error::Missing("name that")), 0),
            Err(e) => return (Err(e), 0),
        };
        (answer.map_err(Error::from), need)
    }

    fn lookup_into(&self, av: Fid, addr: FiAddr, len: usize) -> Result<(Vec<u8>, usize)> {
        Ok(self.table.av(av)?.lookup_into(addr, len)?)
    }

    fn straddr_into(&self, av: Fid, addr: &Address, len: usize) -> Result<(String, usize)> {
        Ok(self.table.av(av)?.straddr_into(&to_lib(addr), len)?)
    }

    fn insert_bytes(&self, av: Fid, bytes: &[u8], count: usize) -> Result<(usize, Vec<FiAddr>)> {
        let av = self.table.av(av)?;
        Ok(av.insert_bytes(bytes, count, Flags::empty())?)
    }

    fn backlog(&self, pep: Fid, backlog: i32) -> Result<()> {
        Ok(self.table.pep(pep)?.backlog(backlog)?)
    }

    fn eq_for_writing(&self, fabric: Fid, wait: WaitObj) -> Result<Fid> {
        let eq = self.table.fabric(fabric)?.eq_for_writing(wait)?;
        let format = self.table.format(fabric);
        Ok(self.table.insert(Object::Eq(eq), format))
    }

    fn eq_write(&self, eq: Fid, event: u32, data: u64) -> Result<()> {
        Ok(self.table.eq(eq)?.write(event, data)?)
    }

    fn eq_read_written(&self, eq: Fid, len: usize, flags: Flags) -> Result<(u32, u64, usize)> {
        Ok(self.table.eq(eq)?.read_written(len, None, flags)?)
    }

    fn strerror(&self, errno: Errno) -> String {
        self.library.strerror(errno)
    }

    fn cq_strerror(&self, cq: Fid, prov_errno: i32) -> Result<String> {
        Ok(self.table.cq(cq)?.strerror(prov_errno))
    }

    fn info_text(&self, info: &Info) -> Result<String> {
        self.with_info(info, |i| Ok(i.to_string()))
    }
}
