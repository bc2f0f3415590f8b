#![allow(unsafe_code)]
//! The two exported functions with a C argument list (`...`).
//!
//! Stable Rust can call such functions but not define them. Each is a few instructions that
//! put the arguments where `va_arg` of the platform's C looks for them, build a `va_list` that
//! says so, and call the function behind it. The platform documents are the System V ABI for
//! x86-64, section "Variable Argument Lists", and the AAPCS64, section "Variable arguments".

use core::arch::naked_asm;
use core::ffi::{c_char, c_int};

use ripstop_abi as abi;

/// Exported as `fi_param_define@@FABRIC_1.0`: declares a parameter of a provider, or of the
/// core for null (`fi_provider(3)`). Returns 0, or `-FI_EINVAL` for a null or empty argument
/// or an unknown type.
///
/// # Safety
///
/// - `provider` is null or a provider with a name.
/// - `name` and `help` are null or C strings; the arguments after `help` match it as a format
///   of `printf`.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ripstop_fi_param_define_1_0(
    provider: *const abi::fi_provider,
    name: *const c_char,
    kind: abi::fi_param_type,
    help: *const c_char,
) -> c_int {
    // The area of saved registers is at rsp, the va_list at rsp + 176. Four named arguments
    // take 32 bytes of the area; floating point starts at 48; the rest is on the stack.
    naked_asm!(
        "push rbp",
        "mov rbp, rsp",
        "sub rsp, 208",
        "mov [rsp + 32], r8",
        "mov [rsp + 40], r9",
        "test al, al",
        "je 2f",
        "movaps [rsp + 48], xmm0",
        "movaps [rsp + 64], xmm1",
        "movaps [rsp + 80], xmm2",
        "movaps [rsp + 96], xmm3",
        "movaps [rsp + 112], xmm4",
        "movaps [rsp + 128], xmm5",
        "movaps [rsp + 144], xmm6",
        "movaps [rsp + 160], xmm7",
        "2:",
        "mov dword ptr [rsp + 176], 32",
        "mov dword ptr [rsp + 180], 48",
        "lea rax, [rbp + 16]",
        "mov [rsp + 184], rax",
        "mov [rsp + 192], rsp",
        "lea r8, [rsp + 176]",
        "call {define}",
        "leave",
        "ret",
        define = sym crate::param::define,
    )
}

/// Exported as `fi_log@@FABRIC_1.0`: logs a line of a provider (`fi_provider(3)`), which the
/// caller has found enabled. Null for the provider is the core.
///
/// # Safety
///
/// - `prov` is null or a provider with a name.
/// - `func` is null or a C string; `fmt` is null or a C string that the arguments after it
///   match as a format of `printf`.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ripstop_fi_log_1_0(
    prov: *const abi::fi_provider,
    level: abi::fi_log_level,
    subsys: abi::fi_log_subsys,
    func: *const c_char,
    line: c_int,
    fmt: *const c_char,
) {
    // The same areas 16 bytes higher: the va_list is the seventh argument and goes to the stack.
    // All six registers are taken by named arguments, 48 bytes of the area.
    naked_asm!(
        "push rbp",
        "mov rbp, rsp",
        "sub rsp, 224",
        "test al, al",
        "je 2f",
        "movaps [rsp + 64], xmm0",
        "movaps [rsp + 80], xmm1",
        "movaps [rsp + 96], xmm2",
        "movaps [rsp + 112], xmm3",
        "movaps [rsp + 128], xmm4",
        "movaps [rsp + 144], xmm5",
        "movaps [rsp + 160], xmm6",
        "movaps [rsp + 176], xmm7",
        "2:",
        "mov dword ptr [rsp + 192], 48",
        "mov dword ptr [rsp + 196], 48",
        "lea rax, [rbp + 16]",
        "mov [rsp + 200], rax",
        "lea rax, [rsp + 16]",
        "mov [rsp + 208], rax",
        "lea rax, [rsp + 192]",
        "mov [rsp], rax",
        "call {write}",
        "leave",
        "ret",
        write = sym crate::log::write,
    )
}

/// See the function for x86-64.
///
/// # Safety
///
/// See there.
#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ripstop_fi_param_define_1_0(
    provider: *const abi::fi_provider,
    name: *const c_char,
    kind: abi::fi_param_type,
    help: *const c_char,
) -> c_int {
    // The va_list is at sp + 16 (stack, end of general registers, end of vector registers, and
    // two offsets from those ends), the general registers end at 112, the vector ones at 240.
    naked_asm!(
        "stp x29, x30, [sp, #-240]!",
        "mov x29, sp",
        "stp x4, x5, [sp, #80]",
        "stp x6, x7, [sp, #96]",
        "stp q0, q1, [sp, #112]",
        "stp q2, q3, [sp, #144]",
        "stp q4, q5, [sp, #176]",
        "stp q6, q7, [sp, #208]",
        "add x9, sp, #240",
        "add x10, sp, #112",
        "stp x9, x10, [sp, #16]",
        "str x9, [sp, #32]",
        "mov w9, #-32",
        "mov w10, #-128",
        "stp w9, w10, [sp, #40]",
        "add x4, sp, #16",
        "bl {define}",
        "ldp x29, x30, [sp], #240",
        "ret",
        define = sym crate::param::define,
    )
}

/// See the function for x86-64.
///
/// # Safety
///
/// See there.
#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ripstop_fi_log_1_0(
    prov: *const abi::fi_provider,
    level: abi::fi_log_level,
    subsys: abi::fi_log_subsys,
    func: *const c_char,
    line: c_int,
    fmt: *const c_char,
) {
    // The same places as for `fi_param_define`; six named arguments leave two general registers.
    naked_asm!(
        "stp x29, x30, [sp, #-240]!",
        "mov x29, sp",
        "stp x6, x7, [sp, #96]",
        "stp q0, q1, [sp, #112]",
        "stp q2, q3, [sp, #144]",
        "stp q4, q5, [sp, #176]",
        "stp q6, q7, [sp, #208]",
        "add x9, sp, #240",
        "add x10, sp, #112",
        "stp x9, x10, [sp, #16]",
        "str x9, [sp, #32]",
        "mov w9, #-16",
        "mov w10, #-128",
        "stp w9, w10, [sp, #40]",
        "add x6, sp, #16",
        "bl {write}",
        "ldp x29, x30, [sp], #240",
        "ret",
        write = sym crate::log::write,
    )
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!("say in crates/capi/src/varargs.rs how C passes `...` on this architecture");
