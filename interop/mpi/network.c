/*
 * Preloaded into a program of MPICH: tells MPICH of each window what it must know to use atomics of the network, which
 * it does not mix with its own ways.
 */
#include <mpi.h>

static MPI_Info with_hint(MPI_Info given)
{
	MPI_Info info;

	if (given == MPI_INFO_NULL)
		PMPI_Info_create(&info);
	else
		PMPI_Info_dup(given, &info);
	/* None through memory that ranks of one machine share. */
	PMPI_Info_set(info, "disable_shm_accumulate", "true");
	/* Not any operation at any time: some of MPI's no network has. */
	PMPI_Info_set(info, "accumulate_ops", "same_op");
	/* A write may overtake a read before it: else the provider must promise it for reads of memory too. */
	PMPI_Info_set(info, "accumulate_ordering", "rar,raw,waw");
	return info;
}

int MPI_Win_create(void *base, MPI_Aint size, int unit, MPI_Info given, MPI_Comm comm, MPI_Win *win)
{
	MPI_Info info = with_hint(given);
	int result = PMPI_Win_create(base, size, unit, info, comm, win);

	PMPI_Info_free(&info);
	return result;
}

int MPI_Win_create_c(void *base, MPI_Aint size, MPI_Aint unit, MPI_Info given, MPI_Comm comm, MPI_Win *win)
{
	MPI_Info info = with_hint(given);
	int result = PMPI_Win_create_c(base, size, unit, info, comm, win);

	PMPI_Info_free(&info);
	return result;
}

int MPI_Win_allocate(MPI_Aint size, int unit, MPI_Info given, MPI_Comm comm, void *base, MPI_Win *win)
{
	MPI_Info info = with_hint(given);
	int result = PMPI_Win_allocate(size, unit, info, comm, base, win);

	PMPI_Info_free(&info);
	return result;
}

int MPI_Win_allocate_c(MPI_Aint size, MPI_Aint unit, MPI_Info given, MPI_Comm comm, void *base, MPI_Win *win)
{
	MPI_Info info = with_hint(given);
	int result = PMPI_Win_allocate_c(size, unit, info, comm, base, win);

	PMPI_Info_free(&info);
	return result;
}
