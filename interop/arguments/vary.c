/* From the facts of a call to its cases. */
#include "arguments.h"

static const struct call *call;
static uint64_t values[PARAMS];

/* The steps from the parameters to the field that is varied: what comes before it are pointers. */
static const struct field *way[8];
static size_t steps;

/* Where the field is, or NULL if a pointer on the way is. */
static char *place(void)
{
	char *base = (char *)values;

	for (size_t n = 0; n + 1 < steps; n++)
		if (!(base = *(char **)(base + way[n]->offset)))
			return NULL;
	return base + way[steps - 1]->offset;
}

static const char *path(void)
{
	static char text[256];
	size_t used = 0;

	text[0] = '\0';
	for (size_t n = 0; n < steps; n++)
		used += (size_t)snprintf(text + used, sizeof text - used, "%s%s", n ? "->" : "", way[n]->name);
	return text;
}

/* A case: the field has this value, and all others what is usual. */
static void with(uint64_t value, const char *name)
{
	if (!trial(call->name, path(), name))
		return;
	call->usual(values);
	memcpy(place(), &value, way[steps - 1]->size);
	result(call->make(values));
}

static void with_number(uint64_t value)
{
	char name[24];

	snprintf(name, sizeof name, "%llu", (unsigned long long)value);
	with(value, name);
}

static void with_bits(const struct bit *known, unsigned width)
{
	char name[96];

	with(0, "0");
	for (unsigned n = 0; n < width; n++) {
		const struct bit *bit = known;

		while (bit->name && bit->value != 1ULL << n)
			bit++;
		if (!bit->name) {
			snprintf(name, sizeof name, "1<<%u", n);
			with(1ULL << n, name);
		}
	}
	for (const struct bit *one = known; one->name; one++)
		with(one->value, one->name);
}

static void with_pairs(const struct bit *known)
{
	char name[96];

	for (const struct bit *one = known; one->name; one++)
		for (const struct bit *two = one + 1; two->name; two++) {
			snprintf(name, sizeof name, "%s|%s", one->name, two->name);
			with(one->value | two->value, name);
		}
}

static void vary(const struct field *field)
{
	for (; field->kind != END; field++) {
		const uint64_t most = field->size == 8 ? UINT64_MAX : (1ULL << 8 * field->size) - 1;

		way[steps++] = field;
		call->usual(values);
		if (place()) {
			switch (field->kind) {
			case END:
				break;
			case STRUCT:
				with(0, "NULL");
				vary(field->facts);
				break;
			case POINTER:
				with(0, "NULL");
				break;
			case NUMBER:
				with(0, "0");
				with(1, "1");
				with(most, "max");
				break;
			case CHOICE:
				for (uint64_t n = 0; n <= field->last + 1; n++)
					with_number(n);
				with(most >> 1, "max");
				break;
			case FLAGS:
				with_bits(field->facts, 8 * (unsigned)field->size);
				with_pairs(field->facts);
				break;
			case BITS:
				with_bits(field->facts, 8 * (unsigned)field->size);
				break;
			}
		}
		steps--;
	}
}

void try_all(const struct call *one)
{
	call = one;
	memset(values, 0, sizeof values);
	if (trial(call->name, "", "as usual")) {
		call->usual(values);
		result(call->make(values));
	}
	vary(call->params);
}
