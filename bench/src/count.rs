//! Counts for people.

use std::path::PathBuf;

use anyhow::{Result, ensure};
use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{CellAlignment, Table};
use ripstop_cli::outln;

use crate::device::Device;
use crate::operation::Operation;
use crate::{callgrind, existing};

/// Prints a table with a column for each library.
///
/// # Errors
/// Without valgrind, and what callgrind and the libraries say.
pub(crate) fn print(libs: &[PathBuf], provider: &str) -> Result<()> {
    ensure!(callgrind::is_there(), "valgrind is not there: install it");
    let libs = libs
        .iter()
        .map(|lib| existing(lib))
        .collect::<Result<Vec<_>>>()?;
    let device = Device::of(provider)?;
    let mut table = Table::new();
    table.load_style(UTF8_FULL_CONDENSED);
    let mut header = vec!["instructions".to_owned()];
    for (number, lib) in (b'A'..).zip(&libs) {
        outln!("{}  {}", char::from(number), lib.display());
        header.push(char::from(number).to_string());
    }
    table.set_header(header);
    let mut late = 0.0_f64;
    for operation in Operation::ALL {
        let mut row = vec![operation.key().to_owned()];
        for lib in &libs {
            let cost = callgrind::measure(lib, provider, device.as_ref(), operation)?;
            row.push(format!("{:.0}", cost.instructions));
            late = late.max(cost.late);
        }
        table.add_row(row);
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    outln!("{table}\n{provider}, 8 bytes, user space only");
    if late > 0.0 {
        outln!(
            "up to {:.1} % of the messages were not there at the first read",
            late * 100.0
        );
    }
    Ok(())
}
