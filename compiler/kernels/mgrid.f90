! MGRID's operators in Fortran, for flang: what mgrid.c computes on its grids.
! The V-cycles and the mapped file are mgrid.c's.
module mgrid
  use, intrinsic :: iso_c_binding, only: c_double, c_long
  implicit none
  integer, parameter :: line_max = 4098
contains

  ! Periodic borders.
  subroutine borders(a, m) bind(C)
    integer(c_long), value :: m
    real(c_double), intent(inout) :: a(m, m, m)
    integer(c_long) :: i1, i2, i3
    do i3 = 2, m - 1
      do i2 = 2, m - 1
        a(1, i2, i3) = a(m - 1, i2, i3)
        a(m, i2, i3) = a(2, i2, i3)
      end do
      do i1 = 1, m
        a(i1, 1, i3) = a(i1, m - 1, i3)
        a(i1, m, i3) = a(i1, 2, i3)
      end do
    end do
    do i2 = 1, m
      do i1 = 1, m
        a(i1, i2, 1) = a(i1, i2, m - 1)
        a(i1, i2, m) = a(i1, i2, 2)
      end do
    end do
  end subroutine

  ! Sums of the neighbours of a row: of those that share a face with it, and of
  ! those that share an edge.
  subroutine neighbours(a, i2, i3, m, faces, edges)
    integer(c_long), intent(in) :: i2, i3, m
    real(c_double), intent(in) :: a(m, m, m)
    real(c_double), intent(out) :: faces(m), edges(m)
    integer(c_long) :: i1
    do i1 = 1, m
      faces(i1) = a(i1, i2 - 1, i3) + a(i1, i2 + 1, i3) + a(i1, i2, i3 - 1) + a(i1, i2, i3 + 1)
      edges(i1) = a(i1, i2 - 1, i3 - 1) + a(i1, i2 + 1, i3 - 1) + a(i1, i2 - 1, i3 + 1) &
                  + a(i1, i2 + 1, i3 + 1)
    end do
  end subroutine

  ! r = v - A u, of two arrays that are not the same
  subroutine resid_of(u, v, r, m) bind(C)
    integer(c_long), value :: m
    real(c_double), intent(in) :: u(m, m, m), v(m, m, m)
    real(c_double), intent(inout) :: r(m, m, m)
    real(c_double) :: u1(line_max), u2(line_max)
    integer(c_long) :: i1, i2, i3
    do i3 = 2, m - 1
      do i2 = 2, m - 1
        call neighbours(u, i2, i3, m, u1, u2)
        do i1 = 2, m - 1
          r(i1, i2, i3) = v(i1, i2, i3) - (-8.0d0 / 3.0d0) * u(i1, i2, i3) &
                          - (1.0d0 / 6.0d0) * (u2(i1) + u1(i1 - 1) + u1(i1 + 1)) &
                          - (1.0d0 / 12.0d0) * (u2(i1 - 1) + u2(i1 + 1))
        end do
      end do
    end do
    call borders(r, m)
  end subroutine

  ! r = r - A u
  subroutine resid_in_place(u, r, m) bind(C)
    integer(c_long), value :: m
    real(c_double), intent(in) :: u(m, m, m)
    real(c_double), intent(inout) :: r(m, m, m)
    real(c_double) :: u1(line_max), u2(line_max)
    integer(c_long) :: i1, i2, i3
    do i3 = 2, m - 1
      do i2 = 2, m - 1
        call neighbours(u, i2, i3, m, u1, u2)
        do i1 = 2, m - 1
          r(i1, i2, i3) = r(i1, i2, i3) - (-8.0d0 / 3.0d0) * u(i1, i2, i3) &
                          - (1.0d0 / 6.0d0) * (u2(i1) + u1(i1 - 1) + u1(i1 + 1)) &
                          - (1.0d0 / 12.0d0) * (u2(i1 - 1) + u2(i1 + 1))
        end do
      end do
    end do
    call borders(r, m)
  end subroutine

  ! u = u + C r
  subroutine psinv(r, u, m) bind(C)
    integer(c_long), value :: m
    real(c_double), intent(in) :: r(m, m, m)
    real(c_double), intent(inout) :: u(m, m, m)
    real(c_double) :: r1(line_max), r2(line_max)
    integer(c_long) :: i1, i2, i3
    do i3 = 2, m - 1
      do i2 = 2, m - 1
        call neighbours(r, i2, i3, m, r1, r2)
        do i1 = 2, m - 1
          u(i1, i2, i3) = u(i1, i2, i3) + (-3.0d0 / 8.0d0) * r(i1, i2, i3) &
                          + (1.0d0 / 32.0d0) * (r(i1 - 1, i2, i3) + r(i1 + 1, i2, i3) + r1(i1)) &
                          + (-1.0d0 / 64.0d0) * (r2(i1) + r1(i1 - 1) + r1(i1 + 1))
        end do
      end do
    end do
    call borders(u, m)
  end subroutine

  ! Restriction to the next coarser grid: full weighting.
  subroutine rprj3(r, mf, s, m) bind(C)
    integer(c_long), value :: mf, m
    real(c_double), intent(in) :: r(mf, mf, mf)
    real(c_double), intent(inout) :: s(m, m, m)
    real(c_double) :: faces, edges
    integer(c_long) :: i1, i2, i3, j1, j2, j3
    do j3 = 2, m - 1
      i3 = 2 * j3 - 2
      do j2 = 2, m - 1
        i2 = 2 * j2 - 2
        do j1 = 2, m - 1
          i1 = 2 * j1 - 2
          faces = r(i1 - 1, i2, i3) + r(i1 + 1, i2, i3) + r(i1, i2 - 1, i3) + r(i1, i2 + 1, i3) &
                  + r(i1, i2, i3 - 1) + r(i1, i2, i3 + 1)
          edges = r(i1, i2 - 1, i3 - 1) + r(i1, i2 + 1, i3 - 1) + r(i1, i2 - 1, i3 + 1) &
                  + r(i1, i2 + 1, i3 + 1) + r(i1 - 1, i2 - 1, i3) + r(i1 + 1, i2 - 1, i3) &
                  + r(i1 - 1, i2 + 1, i3) + r(i1 + 1, i2 + 1, i3) + r(i1 - 1, i2, i3 - 1) &
                  + r(i1 + 1, i2, i3 - 1) + r(i1 - 1, i2, i3 + 1) + r(i1 + 1, i2, i3 + 1)
          s(j1, j2, j3) = 0.5d0 * r(i1, i2, i3) + 0.25d0 * faces / 2 + 0.125d0 * edges / 2
        end do
      end do
    end do
    call borders(s, m)
  end subroutine

  ! Adds the trilinear interpolation of the coarser grid.
  subroutine interp(z, mc, u, m) bind(C)
    integer(c_long), value :: mc, m
    real(c_double), intent(in) :: z(mc, mc, mc)
    real(c_double), intent(inout) :: u(m, m, m)
    real(c_double) :: z1(line_max), z2(line_max), z3(line_max)
    integer(c_long) :: i1, i2, i3, k1, k2, k3
    do i3 = 1, mc - 1
      k3 = 2 * i3 - 1
      do i2 = 1, mc - 1
        k2 = 2 * i2 - 1
        do i1 = 1, mc
          z1(i1) = z(i1, i2 + 1, i3) + z(i1, i2, i3)
          z2(i1) = z(i1, i2, i3 + 1) + z(i1, i2, i3)
          z3(i1) = z(i1, i2 + 1, i3 + 1) + z(i1, i2, i3 + 1) + z1(i1)
        end do
        do i1 = 1, mc - 1
          k1 = 2 * i1 - 1
          u(k1, k2, k3) = u(k1, k2, k3) + z(i1, i2, i3)
          u(k1 + 1, k2, k3) = u(k1 + 1, k2, k3) + 0.5d0 * (z(i1 + 1, i2, i3) + z(i1, i2, i3))
          u(k1, k2 + 1, k3) = u(k1, k2 + 1, k3) + 0.5d0 * z1(i1)
          u(k1 + 1, k2 + 1, k3) = u(k1 + 1, k2 + 1, k3) + 0.25d0 * (z1(i1) + z1(i1 + 1))
          u(k1, k2, k3 + 1) = u(k1, k2, k3 + 1) + 0.5d0 * z2(i1)
          u(k1 + 1, k2, k3 + 1) = u(k1 + 1, k2, k3 + 1) + 0.25d0 * (z2(i1) + z2(i1 + 1))
          u(k1, k2 + 1, k3 + 1) = u(k1, k2 + 1, k3 + 1) + 0.25d0 * z3(i1)
          u(k1 + 1, k2 + 1, k3 + 1) = u(k1 + 1, k2 + 1, k3 + 1) + 0.125d0 * (z3(i1) + z3(i1 + 1))
        end do
      end do
    end do
  end subroutine

  ! Sum of squares over the points inside.
  function squares(r, m) bind(C)
    integer(c_long), value :: m
    real(c_double), intent(in) :: r(m, m, m)
    real(c_double) :: squares
    integer(c_long) :: i1, i2, i3
    squares = 0
    do i3 = 2, m - 1
      do i2 = 2, m - 1
        do i1 = 2, m - 1
          squares = squares + r(i1, i2, i3) * r(i1, i2, i3)
        end do
      end do
    end do
  end function
end module
