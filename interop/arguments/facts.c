/* The structures and flags of the interface, as its headers have them. */
#include "arguments.h"

#define BIT(name) { #name, name }

const struct bit none_bits[] = { { 0 } };

const struct bit caps_bits[] = {
	BIT(FI_MSG), BIT(FI_RMA), BIT(FI_TAGGED), BIT(FI_ATOMIC), BIT(FI_MULTICAST), BIT(FI_COLLECTIVE), BIT(FI_READ),
	BIT(FI_WRITE), BIT(FI_RECV), BIT(FI_SEND), BIT(FI_REMOTE_READ), BIT(FI_REMOTE_WRITE), BIT(FI_MULTI_RECV),
	BIT(FI_TRIGGER), BIT(FI_FENCE), BIT(FI_HMEM), BIT(FI_VARIABLE_MSG), BIT(FI_RMA_PMEM), BIT(FI_SOURCE_ERR),
	BIT(FI_LOCAL_COMM), BIT(FI_REMOTE_COMM), BIT(FI_SHARED_AV), BIT(FI_RMA_EVENT), BIT(FI_SOURCE), BIT(FI_NAMED_RX_CTX),
	BIT(FI_DIRECTED_RECV), BIT(FI_AV_USER_ID), BIT(FI_PEER), BIT(FI_XPU_TRIGGER), { 0 } };

const struct bit mode_bits[] = {
	BIT(FI_CONTEXT), BIT(FI_MSG_PREFIX), BIT(FI_ASYNC_IOV), BIT(FI_RX_CQ_DATA), BIT(FI_LOCAL_MR), BIT(FI_NOTIFY_FLAGS_ONLY),
	BIT(FI_RESTRICTED_COMP), BIT(FI_CONTEXT2), BIT(FI_BUFFERED_RECV), { 0 } };

const struct bit operation_bits[] = {
	BIT(FI_MULTICAST), BIT(FI_MULTI_RECV), BIT(FI_REMOTE_CQ_DATA), BIT(FI_MORE), BIT(FI_PEEK), BIT(FI_TRIGGER), BIT(FI_FENCE),
	BIT(FI_PRIORITY), BIT(FI_COMPLETION), BIT(FI_INJECT), BIT(FI_INJECT_COMPLETE), BIT(FI_TRANSMIT_COMPLETE),
	BIT(FI_DELIVERY_COMPLETE), BIT(FI_AFFINITY), BIT(FI_COMMIT_COMPLETE), BIT(FI_MATCH_COMPLETE), BIT(FI_PEER_TRANSFER),
	BIT(FI_CLAIM), BIT(FI_DISCARD), { 0 } };

const struct bit order_bits[] = {
	BIT(FI_ORDER_RAR), BIT(FI_ORDER_RAW), BIT(FI_ORDER_RAS), BIT(FI_ORDER_WAR), BIT(FI_ORDER_WAW), BIT(FI_ORDER_WAS),
	BIT(FI_ORDER_SAR), BIT(FI_ORDER_SAW), BIT(FI_ORDER_SAS), BIT(FI_ORDER_DATA), BIT(FI_ORDER_RMA_RAR), BIT(FI_ORDER_RMA_RAW),
	BIT(FI_ORDER_RMA_WAR), BIT(FI_ORDER_RMA_WAW), BIT(FI_ORDER_ATOMIC_RAR), BIT(FI_ORDER_ATOMIC_RAW),
	BIT(FI_ORDER_ATOMIC_WAR), BIT(FI_ORDER_ATOMIC_WAW), { 0 } };

const struct bit mr_bits[] = {
	{ "FI_MR_BASIC", FI_MR_BASIC }, { "FI_MR_SCALABLE", FI_MR_SCALABLE }, BIT(FI_MR_LOCAL), BIT(FI_MR_RAW),
	BIT(FI_MR_VIRT_ADDR), BIT(FI_MR_ALLOCATED), BIT(FI_MR_PROV_KEY), BIT(FI_MR_MMU_NOTIFY), BIT(FI_MR_RMA_EVENT),
	BIT(FI_MR_ENDPOINT), BIT(FI_MR_HMEM), BIT(FI_MR_COLLECTIVE), { 0 } };

const struct bit access_bits[] = {
	BIT(FI_SEND), BIT(FI_RECV), BIT(FI_READ), BIT(FI_WRITE), BIT(FI_REMOTE_READ), BIT(FI_REMOTE_WRITE), BIT(FI_COLLECTIVE),
	{ 0 } };

const struct bit getinfo_bits[] = { BIT(FI_NUMERICHOST), BIT(FI_SOURCE), BIT(FI_PROV_ATTR_ONLY), { 0 } };

const struct bit set_bits[] = {
	BIT(FI_UNIVERSE), BIT(FI_BARRIER_SET), BIT(FI_BROADCAST_SET), BIT(FI_ALLTOALL_SET), BIT(FI_ALLREDUCE_SET),
	BIT(FI_ALLGATHER_SET), BIT(FI_REDUCE_SCATTER_SET), BIT(FI_REDUCE_SET), BIT(FI_SCATTER_SET), BIT(FI_GATHER_SET), { 0 } };

static const struct bit cq_bits[] = { BIT(FI_AFFINITY), BIT(FI_PEER), { 0 } };
static const struct bit av_bits[] = { BIT(FI_EVENT), BIT(FI_READ), BIT(FI_SYMMETRIC), BIT(FI_PEER), BIT(FI_AV_USER_ID), { 0 } };
static const struct bit eq_bits[] = { BIT(FI_WRITE), BIT(FI_AFFINITY), { 0 } };

#define T struct fi_tx_attr
const struct field tx_fields[] = {
	F_FLAGS(T, caps, caps_bits), F_FLAGS(T, mode, mode_bits), F_FLAGS(T, op_flags, operation_bits),
	F_FLAGS(T, msg_order, order_bits), F_FLAGS(T, comp_order, order_bits), F_NUMBER(T, inject_size), F_NUMBER(T, size),
	F_NUMBER(T, iov_limit), F_NUMBER(T, rma_iov_limit), F_NUMBER(T, tclass), { 0 } };
#undef T
#define T struct fi_rx_attr
const struct field rx_fields[] = {
	F_FLAGS(T, caps, caps_bits), F_FLAGS(T, mode, mode_bits), F_FLAGS(T, op_flags, operation_bits),
	F_FLAGS(T, msg_order, order_bits), F_FLAGS(T, comp_order, order_bits), F_NUMBER(T, total_buffered_recv),
	F_NUMBER(T, size), F_NUMBER(T, iov_limit), { 0 } };
#undef T
#define T struct fi_ep_attr
static const struct field ep_fields[] = {
	F_CHOICE(T, type, FI_EP_SOCK_DGRAM), F_NUMBER(T, protocol), F_NUMBER(T, protocol_version), F_NUMBER(T, max_msg_size),
	F_NUMBER(T, msg_prefix_size), F_NUMBER(T, max_order_raw_size), F_NUMBER(T, max_order_war_size),
	F_NUMBER(T, max_order_waw_size), F_NUMBER(T, mem_tag_format), F_NUMBER(T, tx_ctx_cnt), F_NUMBER(T, rx_ctx_cnt),
	F_NUMBER(T, auth_key_size), F_POINTER(T, auth_key), { 0 } };
#undef T
#define T struct fi_domain_attr
static const struct field domain_fields[] = {
	F_POINTER(T, domain), F_POINTER(T, name), F_CHOICE(T, threading, FI_THREAD_ENDPOINT),
	F_CHOICE(T, control_progress, FI_PROGRESS_MANUAL), F_CHOICE(T, data_progress, FI_PROGRESS_MANUAL),
	F_CHOICE(T, resource_mgmt, FI_RM_ENABLED), F_CHOICE(T, av_type, FI_AV_TABLE), F_FLAGS(T, mr_mode, mr_bits),
	F_NUMBER(T, mr_key_size), F_NUMBER(T, cq_data_size), F_NUMBER(T, cq_cnt), F_NUMBER(T, ep_cnt), F_NUMBER(T, tx_ctx_cnt),
	F_NUMBER(T, rx_ctx_cnt), F_NUMBER(T, max_ep_tx_ctx), F_NUMBER(T, max_ep_rx_ctx), F_NUMBER(T, max_ep_stx_ctx),
	F_NUMBER(T, max_ep_srx_ctx), F_NUMBER(T, cntr_cnt), F_NUMBER(T, mr_iov_limit), F_FLAGS(T, caps, caps_bits),
	F_FLAGS(T, mode, mode_bits), F_POINTER(T, auth_key), F_NUMBER(T, auth_key_size), F_NUMBER(T, max_err_data),
	F_NUMBER(T, mr_cnt), F_NUMBER(T, tclass), { 0 } };
#undef T
#define T struct fi_fabric_attr
const struct field fabric_fields[] = {
	F_POINTER(T, fabric), F_POINTER(T, name), F_POINTER(T, prov_name), F_NUMBER(T, prov_version), F_NUMBER(T, api_version),
	{ 0 } };
#undef T
#define T struct fi_info
const struct field info_fields[] = {
	F_POINTER(T, next), F_FLAGS(T, caps, caps_bits), F_FLAGS(T, mode, mode_bits), F_CHOICE(T, addr_format, 15),
	F_NUMBER(T, src_addrlen), F_NUMBER(T, dest_addrlen), F_POINTER(T, src_addr), F_POINTER(T, dest_addr),
	F_POINTER(T, handle), F_STRUCT(T, tx_attr, tx_fields), F_STRUCT(T, rx_attr, rx_fields), F_STRUCT(T, ep_attr, ep_fields),
	F_STRUCT(T, domain_attr, domain_fields), F_STRUCT(T, fabric_attr, fabric_fields), { 0 } };
#undef T
#define T struct fi_av_attr
const struct field av_fields[] = {
	F_CHOICE(T, type, FI_AV_TABLE), F_NUMBER(T, rx_ctx_bits), F_NUMBER(T, count), F_NUMBER(T, ep_per_node),
	F_POINTER(T, name), F_POINTER(T, map_addr), F_FLAGS(T, flags, av_bits), { 0 } };
#undef T
#define T struct fi_cq_attr
const struct field cq_fields[] = {
	F_NUMBER(T, size), F_FLAGS(T, flags, cq_bits), F_CHOICE(T, format, FI_CQ_FORMAT_TAGGED),
	F_CHOICE(T, wait_obj, FI_WAIT_POLLFD), F_NUMBER(T, signaling_vector), F_CHOICE(T, wait_cond, FI_CQ_COND_THRESHOLD),
	F_POINTER(T, wait_set), { 0 } };
#undef T
#define T struct fi_cntr_attr
const struct field cntr_fields[] = {
	F_CHOICE(T, events, FI_CNTR_EVENTS_COMP), F_CHOICE(T, wait_obj, FI_WAIT_POLLFD), F_POINTER(T, wait_set),
	F_FLAGS(T, flags, cq_bits), { 0 } };
#undef T
#define T struct fi_eq_attr
const struct field eq_fields[] = {
	F_NUMBER(T, size), F_FLAGS(T, flags, eq_bits), F_CHOICE(T, wait_obj, FI_WAIT_POLLFD), F_NUMBER(T, signaling_vector),
	F_POINTER(T, wait_set), { 0 } };
#undef T
#define T struct fi_wait_attr
const struct field wait_fields[] = { F_CHOICE(T, wait_obj, FI_WAIT_POLLFD), F_FLAGS(T, flags, none_bits), { 0 } };
#undef T
#define T struct fi_poll_attr
const struct field poll_fields[] = { F_FLAGS(T, flags, none_bits), { 0 } };
#undef T
#define T struct iovec
const struct field iovec_fields[] = { F_POINTER(T, iov_base), F_NUMBER(T, iov_len), { 0 } };
#undef T
#define T struct fi_mr_attr
const struct field mr_fields[] = {
	F_STRUCT(T, mr_iov, iovec_fields), F_NUMBER(T, iov_count), F_FLAGS(T, access, access_bits), F_NUMBER(T, offset),
	F_NUMBER(T, requested_key), F_POINTER(T, context), F_NUMBER(T, auth_key_size), F_POINTER(T, auth_key),
	F_CHOICE(T, iface, FI_HMEM_SYNAPSEAI), { 0 } };
#undef T
#define T struct fi_av_set_attr
const struct field av_set_fields[] = {
	F_NUMBER(T, count), F_NUMBER(T, start_addr), F_NUMBER(T, end_addr), F_NUMBER(T, stride), F_NUMBER(T, comm_key_size),
	F_POINTER(T, comm_key), F_FLAGS(T, flags, set_bits), { 0 } };
#undef T
#define T struct fi_ioc
const struct field ioc_fields[] = { F_POINTER(T, addr), F_NUMBER(T, count), { 0 } };
#undef T
#define T struct fi_rma_iov
const struct field rma_iov_fields[] = { F_NUMBER(T, addr), F_NUMBER(T, len), F_NUMBER(T, key), { 0 } };
#undef T
#define T struct fi_rma_ioc
const struct field rma_ioc_fields[] = { F_NUMBER(T, addr), F_NUMBER(T, count), F_NUMBER(T, key), { 0 } };
#undef T
#define T struct fi_msg
const struct field msg_fields[] = {
	F_STRUCT(T, msg_iov, iovec_fields), F_POINTER(T, desc), F_NUMBER(T, iov_count), F_NUMBER(T, addr), F_POINTER(T, context),
	F_NUMBER(T, data), { 0 } };
#undef T
#define T struct fi_msg_tagged
const struct field tagged_fields[] = {
	F_STRUCT(T, msg_iov, iovec_fields), F_POINTER(T, desc), F_NUMBER(T, iov_count), F_NUMBER(T, addr), F_NUMBER(T, tag),
	F_NUMBER(T, ignore), F_POINTER(T, context), F_NUMBER(T, data), { 0 } };
#undef T
#define T struct fi_msg_rma
const struct field rma_msg_fields[] = {
	F_STRUCT(T, msg_iov, iovec_fields), F_POINTER(T, desc), F_NUMBER(T, iov_count), F_NUMBER(T, addr),
	F_STRUCT(T, rma_iov, rma_iov_fields), F_NUMBER(T, rma_iov_count), F_POINTER(T, context), F_NUMBER(T, data), { 0 } };
#undef T
#define T struct fi_msg_atomic
const struct field atomic_msg_fields[] = {
	F_STRUCT(T, msg_iov, ioc_fields), F_POINTER(T, desc), F_NUMBER(T, iov_count), F_NUMBER(T, addr),
	F_STRUCT(T, rma_iov, rma_ioc_fields), F_NUMBER(T, rma_iov_count), F_CHOICE(T, datatype, FI_UINT128),
	F_CHOICE(T, op, FI_MSWAP), F_POINTER(T, context), F_NUMBER(T, data), { 0 } };
#undef T
#define T struct fi_collective_attr
const struct field collective_attr_fields[] = {
	F_CHOICE(T, op, FI_MSWAP), F_CHOICE(T, datatype, FI_UINT128), F_NUMBER(T, max_members), F_FLAGS(T, mode, none_bits),
	{ 0 } };
#undef T

/* What a pointer to a length points to. */
const struct field length_fields[] = { { "value", .size = sizeof(size_t), .kind = NUMBER }, { 0 } };

/* Operations that are queued as deferred work, fi_trigger(3). */
#define T struct fi_op_msg
const struct field send_work_fields[] = {
	F_POINTER(T, ep), F_STRUCT(T, msg.msg_iov, iovec_fields), F_POINTER(T, msg.desc), F_NUMBER(T, msg.iov_count),
	F_NUMBER(T, msg.addr), F_POINTER(T, msg.context), F_NUMBER(T, msg.data), F_BITS(T, flags, operation_bits), { 0 } };
#undef T
#define T struct fi_op_tagged
const struct field tagged_work_fields[] = {
	F_POINTER(T, ep), F_STRUCT(T, msg.msg_iov, iovec_fields), F_POINTER(T, msg.desc), F_NUMBER(T, msg.iov_count),
	F_NUMBER(T, msg.addr), F_NUMBER(T, msg.tag), F_NUMBER(T, msg.ignore), F_POINTER(T, msg.context),
	F_NUMBER(T, msg.data), F_BITS(T, flags, operation_bits), { 0 } };
#undef T
#define T struct fi_op_rma
const struct field rma_work_fields[] = {
	F_POINTER(T, ep), F_STRUCT(T, msg.msg_iov, iovec_fields), F_POINTER(T, msg.desc), F_NUMBER(T, msg.iov_count),
	F_NUMBER(T, msg.addr), F_STRUCT(T, msg.rma_iov, rma_iov_fields), F_NUMBER(T, msg.rma_iov_count),
	F_POINTER(T, msg.context), F_NUMBER(T, msg.data), F_BITS(T, flags, operation_bits), { 0 } };
#undef T
#define ATOMIC_WORK(T) \
	F_POINTER(T, ep), F_STRUCT(T, msg.msg_iov, ioc_fields), F_POINTER(T, msg.desc), F_NUMBER(T, msg.iov_count), \
	F_NUMBER(T, msg.addr), F_STRUCT(T, msg.rma_iov, rma_ioc_fields), F_NUMBER(T, msg.rma_iov_count), \
	F_CHOICE(T, msg.datatype, FI_UINT128), F_CHOICE(T, msg.op, FI_MSWAP), F_POINTER(T, msg.context), \
	F_NUMBER(T, msg.data), F_BITS(T, flags, operation_bits)
#define FETCH_WORK(T) \
	F_STRUCT(T, fetch.msg_iov, ioc_fields), F_POINTER(T, fetch.desc), F_NUMBER(T, fetch.iov_count)
const struct field atomic_work_fields[] = { ATOMIC_WORK(struct fi_op_atomic), { 0 } };
const struct field fetch_work_fields[] = {
	ATOMIC_WORK(struct fi_op_fetch_atomic), FETCH_WORK(struct fi_op_fetch_atomic), { 0 } };
#define T struct fi_op_compare_atomic
const struct field compare_work_fields[] = {
	ATOMIC_WORK(T), FETCH_WORK(T), F_STRUCT(T, compare.msg_iov, ioc_fields), F_POINTER(T, compare.desc),
	F_NUMBER(T, compare.iov_count), { 0 } };
#undef T
#define T struct fi_op_cntr
const struct field cntr_work_fields[] = { F_POINTER(T, cntr), F_NUMBER(T, value), { 0 } };
#undef T
