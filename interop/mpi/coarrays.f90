! Coarrays of many images, which OpenCoarrays keeps in MPI's windows (run by interop/run): gets, strided puts, atomics, locks,
! events and sums, each result checked.
program coarrays
  use iso_fortran_env
  implicit none
  integer, parameter :: n = 5000
  real(8) :: a(n)[*], b(n)
  integer(atomic_int_kind) :: hits[*]
  type(event_type) :: ready[*]
  type(lock_type) :: guard[*]
  integer :: me, np, i, round, seen, total[*], rounds
  me = this_image(); np = num_images()
  call atomic_define(hits, 0)
  total = 0
  rounds = 20
  sync all
  do round = 1, rounds
    a = me * 1000 + round
    sync all
    do i = 1, np
      b(:) = a(:)[i]
      if (any(b /= i * 1000 + round)) error stop "wrong get"
    end do
    sync all
    a(1:n:7)[mod(me, np) + 1] = -me
    sync all
    i = me - 1; if (i == 0) i = np
    if (any(a(1:n:7) /= -i)) error stop "wrong strided put"
    sync all
    call atomic_add(hits[1], 1)
    lock(guard[1])
    total[1] = total[1] + me
    unlock(guard[1])
    event post(ready[mod(me, np) + 1])
    event wait(ready)
    seen = me
    call co_sum(seen)
    if (seen /= np * (np + 1) / 2) error stop "wrong sum"
  end do
  sync all
  if (me == 1) then
    call atomic_ref(seen, hits)
    if (seen /= rounds * np) error stop "wrong count"
    if (total /= rounds * np * (np + 1) / 2) error stop "wrong total"
    print *, "coarrays:", np, "images are right"
  end if
end program coarrays
