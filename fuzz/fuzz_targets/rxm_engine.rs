#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| ripstop_fuzz_bodies::engine::receive_packets(data));
