/* The shortest program there is: it meets the others and ends. */
#include "say.h"

int main(int argc, char **argv)
{
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	MPI_Finalize();
	/* One write for each process. */
	printf("met %d of %d;\n", rank, ranks);
	return 0;
}
